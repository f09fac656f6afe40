"""Run directories, one per attempt: the files that Terraform reads and its state, and nothing else.

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
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock

from pricing.atomic_file import make_private_folder, publish_folder, write_atomic
from terraform.errors import RunDirectoryError, StateLostError
from terraform.render import MAIN, SECRET_FILES, SECRETS, VALUES, render
from terraform.spec import WorkspaceSpec

MODULES: Final = Path(__file__).with_name("modules")
MODULE: Final = "module"
CLI_CONFIG: Final = "terraform.tfrc"
STATE: Final = "terraform.tfstate"
PREVIEW: Final = "preview.tfplan"
# This file exists once `init` was done.
_INITIALIZED: Final = ".terraform/modules/modules.json"
_CACHE: Final = "plugin_cache_dir"
_LOST: Final = "terraform.tfstate.lost"
_LOCK: Final = ".terraform.tfstate.lock.info"


def prepare(
    directory: Path, spec: WorkspaceSpec, *, plugins: PluginSources | None = None, modules: Path = MODULES
) -> None:
    """Create or renew the run directory of ``spec``; each file is whole, old or new, at any moment.

    The same spec again changes nothing. RunDirectoryError when it cannot be written or is another attempt's.
    """
    settings = plugins or PluginSources()
    source = modules / spec.cloud
    if not source.is_dir():
        raise RunDirectoryError(f"there is no module for {spec.cloud} in {modules}")
    with _errors_explained(directory):
        make_private_folder(directory)
        directory.chmod(0o700)
        _check_owner(directory, spec.attempt)
        if settings.cache is not None:
            make_private_folder(settings.cache)
        _copy_module(source, directory / MODULE)
        for name, text in render(spec, f"./{MODULE}").items():
            write_atomic(directory / name, text, 0o600 if name in SECRET_FILES else 0o644)
        write_atomic(directory / CLI_CONFIG, render_cli_config(settings), 0o644)


def find_damaged_files(directory: Path) -> tuple[str, ...]:
    """Return the names of the files of a prepared directory that are missing or not JSON.

    None where nothing was prepared. User data counts only while it lies there: releasing does not need it.
    """
    if not (directory / MAIN).exists() and not any(directory.glob("*.tfstate")):
        return ()
    return tuple(
        name
        for name in (MAIN, VALUES, SECRETS, _INITIALIZED)
        if not _is_json(directory / name) and (name in (MAIN, VALUES) or (directory / name).exists())
    )


def repair(directory: Path, spec: WorkspaceSpec, *, plugins: PluginSources | None = None) -> None:
    """Write the :func:`find_damaged_files` again, so that the machines of ``spec`` can be released.

    Whole files stay as they are. RunDirectoryError when the directory cannot be written.
    """
    bad = find_damaged_files(directory)
    texts = dict(render(spec, f"./{MODULE}"))
    with _errors_explained(directory):
        _copy_module(MODULES / spec.cloud, directory / MODULE)
        for name in bad:
            if name in (SECRETS, _INITIALIZED):
                (directory / name).unlink(missing_ok=True)
            elif name == VALUES and MAIN not in bad:
                # An earlier version may have declared other variables.
                declared = json.loads((directory / MAIN).read_bytes()).get("variable", {})
                values = {key: value for key, value in json.loads(texts[VALUES]).items() if key in declared}
                write_atomic(directory / VALUES, json.dumps(values, indent=2, sort_keys=True) + "\n", 0o644)
            else:
                write_atomic(directory / name, texts[name], 0o644)
        if not (directory / CLI_CONFIG).is_file():
            write_atomic(directory / CLI_CONFIG, render_cli_config(plugins or PluginSources()), 0o644)


def _is_json(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_bytes()), dict)
    except (OSError, ValueError):
        return False


def read_user_data(directory: Path) -> tuple[str, ...]:
    """Return the user data that lies in the directory, to be masked; empty when there is none."""
    try:
        content = json.loads((directory / SECRETS).read_text(encoding="utf-8"))
        return tuple(str(text) for text in content["user_data"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()


def forget_secrets(directory: Path) -> None:
    """Remove the user data once the machines have it, and any preview that was never applied.

    Releasing the machines does not need user data; making them again does. A preview holds the same secrets.
    """
    with _errors_explained(directory):
        (directory / SECRETS).unlink(missing_ok=True)
        (directory / PREVIEW).unlink(missing_ok=True)


def check_directory(directory: Path) -> None:
    """Raise RunDirectoryError unless the directory was prepared and can be written; StateLostError for a lost state."""
    if not (directory / MAIN).is_file():
        raise RunDirectoryError(f"{directory} holds no {MAIN}: nothing was prepared there")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise RunDirectoryError(f"{directory} cannot be written", remedy="give its owner the right to write")
    check_state(directory)


def check_state(directory: Path) -> None:
    """Raise StateLostError when the local state is empty or cut off and no process is writing it at the moment."""
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
        if _is_locked(path):
            return  # The state is being written: Terraform will report that it is locked.
        what = "is empty" if not content else "is cut off"
        raise StateLostError(
            f"{path} {what}: Terraform was killed while it wrote, and has forgotten what it was making",
            remedy="find the machines by their tag and release them (sweep), then forget this state",
        ) from error


def lists_resources(directory: Path) -> bool:
    """Return whether the local state lists something, or cannot be read; a remote state is not read."""
    try:
        content = json.loads((directory / STATE).read_bytes())
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
    return not isinstance(content, dict) or bool(content.get("resources"))


def forget_state(directory: Path) -> Path | None:
    """Move a lost state aside, so that the directory can be used again.

    Returns its new path, None when none was lost. Call it after the resources that the state should have listed were
    released by other means. A whole state is never moved.
    """
    try:
        check_state(directory)
    except StateLostError:
        with _errors_explained(directory):
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
        return  # The directory is new, or an earlier try failed early: the file is written again.
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
        publish_folder(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _is_locked(path: Path) -> bool:
    try:
        with path.open("rb+") as stream:
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in {errno.EACCES, errno.EAGAIN}
    return False


@contextmanager
def _errors_explained(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # shutil.Error is an OSError too.
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise RunDirectoryError(f"{directory}: no space left", remedy="free some space and try again") from error
        reason = error.strerror or str(error)
        raise RunDirectoryError(f"the run directory {directory} cannot be written: {reason}") from error


@dataclass(frozen=True, slots=True)
class PluginSources:
    """The sources of provider plugins.

    ``cache``: a folder shared by all runs, so that a provider is fetched once. ``mirror``: the only place to take
    providers from, for machines without a registry.
    """

    cache: Path | None = None
    mirror: Path | None = None


def render_cli_config(plugins: PluginSources) -> str:
    """Return the text of a file for ``TF_CLI_CONFIG_FILE``; the same settings give the same text."""
    lines = ["disable_checkpoint = true"]
    if plugins.cache is not None:
        lines.append(f"{_CACHE} = {_quoted(plugins.cache)}")
        # A run directory has no lock file of its own making: without this every one would fetch its providers anew.
        lines.append("plugin_cache_may_break_dependency_lock_file = true")
    if plugins.mirror is not None:
        path = f"    path = {_quoted(plugins.mirror)}"
        lines += ["provider_installation {", "  filesystem_mirror {", path, "  }", "}"]
    return "\n".join(lines) + "\n"


@contextmanager
def hold_plugin_cache(directory: Path) -> Iterator[None]:
    """Hold the directory's plugin cache, if it has one: two engines that fill it at once would damage it."""
    try:
        lines = (directory / CLI_CONFIG).read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    found = [line.removeprefix(f"{_CACHE} = ") for line in lines if line.startswith(f"{_CACHE} = ")]
    if not found:
        yield
        return
    cache = Path(json.loads(found[0]))
    with _errors_explained(cache):
        make_private_folder(cache)
        lock = FileLock(cache / ".lock")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def is_initialized(directory: Path) -> bool:
    """Return whether `init` was done, and no provider that it linked to has left the plugin cache since."""
    links = (path for path in (directory / ".terraform" / "providers").rglob("*") if path.is_symlink())
    return (directory / _INITIALIZED).is_file() and all(path.exists() for path in links)


def _quoted(path: Path) -> str:
    # The language of this file quotes strings as JSON does.
    return json.dumps(str(path))
