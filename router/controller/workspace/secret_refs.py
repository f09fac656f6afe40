"""Resolve the environment of a job into plain values and secrets, which a job file only refers to."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from pricing.problems import InvalidInputError
from router.deploy.deploy_settings import JOB_VARIABLE_PREFIX, SecretsEntry
from router.jobs.spec import SECRET_FROM_ENVIRONMENT, SECRET_FROM_FILE, Job

_REFERENCE = "secret:"
# More than all the user data of a machine may hold.
_LARGEST_BYTES = 65_536


def resolve_environment(
    job: Job, environment: Mapping[str, str], allowed: SecretsEntry
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the (plain, secret) values of a job's environment by name.

    ``secret:env:NAME`` is the value of ``NAME`` in ``environment``, ``secret:file:PATH`` the text of a file without
    newlines at its end. InvalidInputError when the job's team is not ``allowed`` the reference, when it is missing, or
    when an environment cannot hold it.
    """
    plain: dict[str, str] = {}
    secret: dict[str, str] = {}
    for name, value in job.run.env if job.run is not None else ():
        if value.startswith(SECRET_FROM_ENVIRONMENT):
            wanted = value.removeprefix(SECRET_FROM_ENVIRONMENT)
            if not allowed.allows_variable(wanted):
                raise _permission_error(job.name, name, f"the variable {wanted}", job.team, "env", wanted)
            if wanted not in environment:
                raise _input_error(
                    job.name, name, f"refers to the variable {wanted}, which is not set here", f"export {wanted}"
                )
            secret[name] = environment[wanted]
        elif value.startswith(SECRET_FROM_FILE):
            secret[name] = _text_of(job.name, name, value.removeprefix(SECRET_FROM_FILE), allowed.files, job.team)
        elif value.startswith(_REFERENCE):
            # The value is not shown: somebody may have written the secret itself.
            remedy = "write secret:env:NAME or secret:file:PATH"
            raise _input_error(job.name, name, "begins with secret: and is no reference", remedy)
        else:
            plain[name] = value
    for name, value in (*plain.items(), *secret.items()):
        if "\0" in value:
            raise _input_error(job.name, name, "holds a zero byte, which no variable can", "encode it, as base64 does")
    return plain, secret


def _text_of(job: str, name: str, path: str, allowed: Sequence[str], team: str) -> str:
    try:
        # The target of a link decides, so that nobody links from an allowed folder to elsewhere.
        resolved_path = Path(path).expanduser().resolve()
        allowed_paths = [Path(place).expanduser().resolve() for place in allowed]
        is_allowed = any(resolved_path == place or place in resolved_path.parents for place in allowed_paths)
        if is_allowed:
            return _read(resolved_path).decode().rstrip("\n")
    except UnicodeDecodeError:
        reason = "is not text"
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "is no path"
    else:
        raise _permission_error(job, name, path, team, "files", path)
    raise _input_error(job, name, f"refers to {path}: {reason}", "give the file to whoever applies")


def _read(path: Path) -> bytes:
    """Return the content of a regular file. OSError for anything else, which could be endless or block the reader."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(0, "Is a directory" if stat.S_ISDIR(mode) else "is no regular file")
        content = file.read(_LARGEST_BYTES + 1)
    if len(content) > _LARGEST_BYTES:
        raise OSError(0, f"is longer than {_LARGEST_BYTES} bytes")
    return content


def _permission_error(job: str, name: str, what: str, team: str, kind: str, entry: str) -> InvalidInputError:
    remedy = f"add it to secrets.{team}.{kind} of the deploy file: [{entry}]"
    if kind == "env":
        remedy += f"; or export it as {JOB_VARIABLE_PREFIX}..., which every team may name"
    return _input_error(job, name, f"refers to {what}, which team {team} may not", remedy)


def _input_error(job: str, name: str, what: str, remedy: str) -> InvalidInputError:
    return InvalidInputError.single(what, where=f"job {job}", field=f"run.env.{name}", remedy=remedy)
