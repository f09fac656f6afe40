"""Environment of a job, told apart: plain values, and secrets, which a job file only refers to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pricing.problems import InvalidInputError

_BY_ENVIRONMENT, _BY_FILE = "secret:env:", "secret:file:"


def resolved(
    job: str, pairs: Iterable[tuple[str, str]], environment: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """(plain, secret) values by name. ``secret:env:NAME`` is the value of ``NAME`` in ``environment``,
    ``secret:file:PATH`` the text of a file without the newline at its end. InvalidInputError when one is not there."""
    plain: dict[str, str] = {}
    secret: dict[str, str] = {}
    for name, value in pairs:
        if value.startswith(_BY_ENVIRONMENT):
            wanted = value.removeprefix(_BY_ENVIRONMENT)
            if wanted not in environment:
                raise _missing(job, name, f"refers to the variable {wanted}, which is not set here", f"export {wanted}")
            secret[name] = environment[wanted]
        elif value.startswith(_BY_FILE):
            path = Path(value.removeprefix(_BY_FILE)).expanduser()
            try:
                secret[name] = path.read_text(encoding="utf-8").rstrip("\n")
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "is not text"
                raise _missing(job, name, f"refers to {path}: {reason}", "give the file to whoever applies") from None
        else:
            plain[name] = value
    return plain, secret


def _missing(job: str, name: str, what: str, remedy: str) -> InvalidInputError:
    return InvalidInputError.single(what, where=f"job {job}", field=f"run.env.{name}", remedy=remedy)
