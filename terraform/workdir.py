"""One directory per attempt: what Terraform reads, its state, nothing of anybody else's.

``module/`` is a copy, made once: machines are released by the module that made them, whatever version of stepfare runs
by then, and the directory can be moved. Its mode is 0700, that of the file with secrets 0600.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from terraform.cliconfig import Plugins, render_cli_config
from terraform.errors import RunDirectoryError, StateLostError
from terraform.render import MAIN, SECRET_FILES, SECRETS, VALUES, render
from terraform.spec import WorkspaceSpec

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "module"
CLI_CONFIG: Final = "terraform.tfrc"
STATE: Final = "terraform.tfstate"
PREVIEW: Final = "preview.tfplan"
_LOST: Final = "terraform.tfstate.lost"
_LOCK: Final = ".terraform.tfstate.lock.info"


def prepare(directory: Path, spec: WorkspaceSpec, *, plugins: Plugins | None = None, modules: Path = MODULES) -> None:
    """Makes or renews the run directory of ``spec``; each file is whole, old or new, at any moment.

    The same spec again changes nothing. RunDirectoryError when it cannot be written or is another attempt's.
    """
    settings = plugins or Plugins()
    source = modules / spec.cloud
    if not source.is_dir():
        raise RunDirectoryError(f"there is no module for {spec.cloud} in {modules}")
    with _explained(directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        _check_owner(directory, spec.attempt)
        if settings.cache is not None:
            settings.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        _copy_module(source, directory / MODULE)
        for name, text in render(spec, f"./{MODULE}").items():
            _write(directory / name, text, 0o600 if name in SECRET_FILES else 0o644)
        _write(directory / CLI_CONFIG, render_cli_config(settings), 0o644)


def secrets_in(directory: Path) -> tuple[str, ...]:
    """The user data that lies in the directory, to be masked; empty when there is none."""
    try:
        content = json.loads((directory / SECRETS).read_text(encoding="utf-8"))
        return tuple(str(text) for text in content["user_data"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()


def forget_secrets(directory: Path) -> None:
    """Removes the user data, once the machines have it: releasing them does not need it, making them again does. Also a
    preview that was never applied: it holds the same."""
    with _explained(directory):
        (directory / SECRETS).unlink(missing_ok=True)
        (directory / PREVIEW).unlink(missing_ok=True)


def check_directory(directory: Path) -> None:
    """RunDirectoryError unless something was prepared there and can be written; StateLostError."""
    if not (directory / MAIN).is_file():
        raise RunDirectoryError(f"{directory} holds no {MAIN}: nothing was prepared there")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise RunDirectoryError(f"{directory} cannot be written", remedy="give its owner the right to write")
    check_state(directory)


def check_state(directory: Path) -> None:
    """StateLostError when the local state is empty or cut off and nobody is writing it at the moment."""
    path = directory / STATE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be read: {error.strerror}") from error
    try:
        json.loads(content)
    except ValueError as error:
        if _held(path):
            return  # being written: Terraform will say that it is locked
        what = "is empty" if not content else "is cut off"
        raise StateLostError(
            f"{path} {what}: Terraform was killed while it wrote, and has forgotten what it was making",
            remedy="find the machines by their tag and release them (sweep), then forget this state",
        ) from error


def forget_state(directory: Path) -> Path | None:
    """Puts a lost state aside, so that the directory can be used again; its new place, None when none was lost.

    For whoever has released by other means what the state should have listed. A whole state is never put aside.
    """
    try:
        check_state(directory)
    except StateLostError:
        with _explained(directory):
            handle, name = tempfile.mkstemp(dir=directory, prefix=f"{_LOST}-")
            os.close(handle)
            (directory / STATE).replace(name)
            (directory / _LOCK).unlink(missing_ok=True)
        return Path(name)
    return None


def _check_owner(directory: Path, attempt: str) -> None:
    try:
        owner = json.loads((directory / VALUES).read_text(encoding="utf-8")).get("attempt")
    except (FileNotFoundError, ValueError):
        return  # new, or an earlier try that did not get far: the file is written again
    if owner != attempt:
        raise RunDirectoryError(f"{directory} belongs to attempt {owner}, not {attempt}")


def _copy_module(source: Path, target: Path) -> None:
    if target.exists():
        return
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{MODULE}-"))
    try:
        shutil.copytree(
            source, temporary, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", ".terraform*")
        )
        temporary.replace(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write(path: Path, text: str, mode: int) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            os.fchmod(handle, mode)
            stream.write(text)
            stream.flush()
            os.fsync(handle)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _held(path: Path) -> bool:
    """Whether another process holds Terraform's lock on the state."""
    try:
        with path.open("rb+") as stream:
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in {errno.EACCES, errno.EAGAIN}
    return False


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # shutil.Error is one too
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise RunDirectoryError(f"{directory}: no space left", remedy="free some space and try again") from error
        reason = error.strerror or str(error)
        raise RunDirectoryError(f"the run directory {directory} cannot be written: {reason}") from error
