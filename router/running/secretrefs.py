"""Environment of a job, told apart: plain values, and secrets, which a job file only refers to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pricing.problems import InvalidInputError

_REFERENCE, _BY_ENVIRONMENT, _BY_FILE = "secret:", "secret:env:", "secret:file:"


def resolved(
    job: str, pairs: Iterable[tuple[str, str]], environment: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """(plain, secret) values by name. ``secret:env:NAME`` is the value of ``NAME`` in ``environment``,
    ``secret:file:PATH`` the text of a file without newlines at its end. InvalidInputError when one is not there, or is
    nothing that an environment can hold."""
    plain: dict[str, str] = {}
    secret: dict[str, str] = {}
    for name, value in pairs:
        if value.startswith(_BY_ENVIRONMENT):
            wanted = value.removeprefix(_BY_ENVIRONMENT)
            if wanted not in environment:
                raise _missing(job, name, f"refers to the variable {wanted}, which is not set here", f"export {wanted}")
            secret[name] = environment[wanted]
        elif value.startswith(_BY_FILE):
            secret[name] = _text_of(job, name, value.removeprefix(_BY_FILE))
        elif value.startswith(_REFERENCE):
            # Not shown: somebody may have written the secret itself.
            remedy = "write secret:env:NAME or secret:file:PATH"
            raise _missing(job, name, "begins with secret: and is no reference", remedy)
        else:
            plain[name] = value
    for name, value in (*plain.items(), *secret.items()):
        if "\0" in value:
            raise _missing(job, name, "holds a zero byte, which no variable can", "encode it, as base64 does")
    return plain, secret


def _text_of(job: str, name: str, path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").rstrip("\n")
    except UnicodeDecodeError:
        reason = "is not text"
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "is no path"
    raise _missing(job, name, f"refers to {path}: {reason}", "give the file to whoever applies")


def _missing(job: str, name: str, what: str, remedy: str) -> InvalidInputError:
    return InvalidInputError.single(what, where=f"job {job}", field=f"run.env.{name}", remedy=remedy)
