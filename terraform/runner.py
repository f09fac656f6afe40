"""Runner of Terraform in a run directory: init, preview, apply, outputs, destroy, state. Calls share nothing.

Every command is a process of its own with a time limit (:mod:`terraform.process`); errors are those of
:mod:`terraform.errors`, with Terraform's diagnostics. Nothing is logged.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from terraform.engine import Engine
from terraform.errors import (
    ApplyFailedError,
    DestroyFailedError,
    Diagnostic,
    EngineMissingError,
    InitFailedError,
    PreviewFailedError,
    ReadFailedError,
    RunDirectoryError,
    RunError,
    StateLockedError,
    StoppedError,
    TimedOutError,
)
from terraform.events import Masker, ResourceChange, TerraformEvent, Transcript, secret_values
from terraform.process import EndReason, ProcessResult, StopTimeouts, command_line, run_process
from terraform.workdir import (
    CLI_CONFIG,
    PREVIEW,
    check_directory,
    hold_plugin_cache,
    is_initialized,
    read_user_data,
)

_LOCKED: Final = "Error acquiring the state lock"
# Terraform says so of a full disk too, where nobody else holds the lock and waiting for it is in vain.
_LOCK_NOT_WRITTEN: Final = "could not write lock info"
_DELETES: Final = frozenset({"delete", "replace"})
_CREATES: Final = frozenset({"create", "replace"})
_CHANGES: Final = frozenset({"update"})
_DATA: Final = re.compile(r"(?:^|(?<!module)\.)data\.")
_BOX: Final = re.compile(r"^[╷│╵\s]+", re.MULTILINE)
# Variables that would silently change a command, or (TF_LOG) write every value to stderr.
_NOT_PASSED_ON: Final = re.compile(
    r"TF_(?:LOG.*|CLI_.*|VAR_.*|DATA_DIR|WORKSPACE|INPUT|PLUGIN_CACHE.*|STATE_PERSIST.*|IN_AUTOMATION)"
)
# Terraform writes the whole state for every resource, so most of a large gang's time would be Go's garbage collection.
# The memory limit is needed because providers, which are large, inherit it. The caller's own values take precedence.
_LESS_GARBAGE_COLLECTION: Final = {"GOGC": "400", "GOMEMLIMIT": "2GiB"}
_LOCK_PAUSE_S, _LOCK_TRIES = 2.0, 30
Result = TypeVar("Result")
_FIXED_VARIABLES: Final = {"CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1", "TF_INPUT": "0"}


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """Time limit of each command in seconds, and the timeouts for stopping one."""

    init_s: float = 300.0
    preview_s: float = 600.0
    apply_s: float = 1800.0
    destroy_s: float = 1800.0
    read_s: float = 120.0
    patience: StopTimeouts = field(default_factory=StopTimeouts)


@dataclass(frozen=True, slots=True)
class Preview:
    """The changes that an apply would make, and changes made outside Terraform (``drift``), by address.

    A replaced resource counts under ``creates`` and ``destroys``. ``file`` holds secrets; :meth:`Runner.apply` removes
    it.
    """

    creates: tuple[str, ...]
    changes: tuple[str, ...]
    destroys: tuple[str, ...]
    drift: tuple[ResourceChange, ...]
    file: Path

    @property
    def is_empty(self) -> bool:
        """Return whether an apply would change nothing."""
        return not (self.creates or self.changes or self.destroys)


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The result of an apply: outputs by name, and each step that was completed."""

    outputs: Mapping[str, Any]
    done: tuple[TerraformEvent, ...]
    warnings: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class _Command:
    """One command of the engine: where it runs, the error that says that it failed, and its time limit."""

    directory: Path
    name: str
    failed: type[RunError]
    limit_s: float


@dataclass(frozen=True, slots=True)
class Runner:
    """Run ``engine`` with ``environment`` (PATH, HOME, credentials; nothing is inherited).

    Threads may share a runner. Secrets, that is user data and values of the environment whose names say so, are masked
    in every error.
    """

    engine: Engine
    environment: Mapping[str, str] = field(repr=False)
    limits: CommandLimits = CommandLimits()
    parallelism: int = 64

    def init(self, directory: Path) -> None:
        """Fetch providers and connect the state; doing it again is harmless. Raises InitFailedError."""
        with hold_plugin_cache(directory):
            command = _Command(directory, "init", InitFailedError, self.limits.init_s)
            self._run(command, input=False, no_color=True)

    def preview(self, directory: Path, *, stop: threading.Event | None = None) -> Preview:
        """Return the changes that an apply would make, without making any.

        Raises PreviewFailedError, StateLockedError, StateLostError.
        """
        self._ensure_prepared(directory)
        file = directory / PREVIEW
        command = _Command(directory, "plan", PreviewFailedError, self.limits.preview_s)
        try:
            transcript = self._stream(command, None, stop, out=PREVIEW)
            file.chmod(0o600)
        except BaseException:
            with suppress(OSError):
                file.unlink(missing_ok=True)
            raise
        return Preview(
            creates=_addresses(transcript.planned, _CREATES),
            changes=_addresses(transcript.planned, _CHANGES),
            destroys=_addresses(transcript.planned, _DELETES),
            drift=tuple(sorted(transcript.drift, key=lambda change: change.address)),
            file=file,
        )

    def apply(
        self,
        directory: Path,
        on_event: Callable[[TerraformEvent], None] | None = None,
        *,
        preview: Preview | None = None,
        stop: threading.Event | None = None,
    ) -> ApplyResult:
        """Create the missing resources; with ``preview`` make exactly its changes.

        A preview is refused when the state has changed since. ``on_event`` is called in this thread; if it raises,
        Terraform is stopped and the exception passed on. After ApplyFailedError, TimedOutError and StoppedError some
        machines may exist; after StateLockedError and StateLostError none do.
        """
        self._ensure_prepared(directory)
        command = _Command(directory, "apply", ApplyFailedError, self.limits.apply_s)
        files = () if preview is None else (preview.file.name,)
        try:
            transcript = self._stream(command, on_event, stop, *files, auto_approve=preview is None)
        finally:
            if preview is not None:
                preview.file.unlink(missing_ok=True)
        outputs = transcript.outputs if transcript.outputs is not None else self.outputs(directory)
        return ApplyResult(outputs, tuple(transcript.done), tuple(d for d in transcript.diagnostics if not d.is_error))

    def destroy(
        self,
        directory: Path,
        on_event: Callable[[TerraformEvent], None] | None = None,
        *,
        stop: threading.Event | None = None,
    ) -> tuple[TerraformEvent, ...]:
        """Release everything in the state and return the completed steps; an empty state is no error.

        Raises DestroyFailedError and the errors of :meth:`apply`.
        """
        self._ensure_prepared(directory)
        command = _Command(directory, "apply", DestroyFailedError, self.limits.destroy_s)
        transcript = self._stream(command, on_event, stop, destroy=True, auto_approve=True)
        return tuple(transcript.done)

    def outputs(self, directory: Path) -> Mapping[str, Any]:
        """Return the outputs in the state, by name; empty before the first apply. Raises ReadFailedError."""
        self._ensure_prepared(directory)
        command = _Command(directory, "output", ReadFailedError, self.limits.read_s)
        text = self._run(command, json=True, no_color=True)
        try:
            return {name: output["value"] for name, output in json.loads(text).items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReadFailedError(f"terraform output in {directory} is no JSON of outputs") from error

    def state(self, directory: Path) -> tuple[str, ...]:
        """Return addresses of the resources in the state, sorted; empty before the first apply.

        Raises ReadFailedError.
        """
        self._ensure_prepared(directory)
        try:
            text = self._run(_Command(directory, "state list", ReadFailedError, self.limits.read_s))
        except ReadFailedError as error:
            if any("No state file was found" in diagnostic.summary for diagnostic in error.diagnostics):
                return ()
            raise
        return tuple(sorted(line for line in text.splitlines() if line and not _DATA.search(line)))

    def _ensure_prepared(self, directory: Path) -> None:
        check_directory(directory)
        if not is_initialized(directory):
            self.init(directory)

    def _stream(
        self,
        command: _Command,
        on_event: Callable[[TerraformEvent], None] | None,
        stop: threading.Event | None,
        *arguments: str,
        **options: bool | str | int,
    ) -> Transcript:
        mask = self._masker(command.directory)
        transcript = Transcript(mask)

        def take(line: str) -> None:
            event = transcript.read(line)
            if event is not None and on_event is not None:
                on_event(event)

        options |= {"input": False, "json": True, "parallelism": self.parallelism}
        words = command_line(self.engine.path, command.name, *arguments, **options)
        finished = self._process(command, words, take, stop)
        diagnostics = transcript.diagnostics
        if finished.code != 0 and not any(diagnostic.is_error for diagnostic in diagnostics):
            diagnostics = [*diagnostics, *_from_text(mask(finished.stderr), finished.ended)]
        _raise_failure(command, finished, diagnostics)
        return transcript

    def _run(self, command: _Command, **options: bool | str | int) -> str:
        check_directory(command.directory)
        lines: list[str] = []
        words = command_line(self.engine.path, command.name, **options)
        finished = self._process(command, words, lines.append, None)
        errors = self._masker(command.directory)(finished.stderr)
        diagnostics = _from_text(errors, finished.ended) if finished.code != 0 else []
        _raise_failure(command, finished, diagnostics)
        return "\n".join(lines)

    def _process(
        self,
        command: _Command,
        words: tuple[str, ...],
        on_line: Callable[[str], None],
        stop: threading.Event | None,
    ) -> ProcessResult:
        directory = command.directory
        inherited = {name: value for name, value in self.environment.items() if not _NOT_PASSED_ON.fullmatch(name)}
        config = directory.absolute() / CLI_CONFIG
        # Every command would warn about a missing file.
        fixed = {**_FIXED_VARIABLES, **({"TF_CLI_CONFIG_FILE": str(config)} if config.is_file() else {})}
        try:
            return run_process(
                words,
                folder=directory,
                environment={**_LESS_GARBAGE_COLLECTION, **inherited, **fixed},
                limit_s=command.limit_s,
                patience=self.limits.patience,
                on_line=on_line,
                stop=stop,
            )
        except FileNotFoundError as error:
            if not directory.is_dir():
                raise RunDirectoryError(f"the run directory {directory} is gone") from error
            raise EngineMissingError(f"{self.engine.path} is gone") from error
        except PermissionError as error:
            raise EngineMissingError(f"{self.engine.path} may not be run") from error

    def _masker(self, directory: Path) -> Masker:
        return Masker((*read_user_data(directory), *secret_values(self.environment)))


def retry_while_locked(action: Callable[[], Result]) -> Result:
    """Call the action, retrying while an engine whose parent was killed still holds the state's lock.

    Such an engine ends by itself.
    """
    for _ in range(_LOCK_TRIES):
        try:
            return action()
        except StateLockedError:
            time.sleep(_LOCK_PAUSE_S)
    return action()


def _raise_failure(command: _Command, finished: ProcessResult, diagnostics: list[Diagnostic]) -> None:
    what = f"terraform {command.name} in {command.directory}"
    # A command that was stopped late and completed all the same has done what was asked.
    if finished.code == 0:
        return
    if finished.ended is EndReason.TIME_LIMIT:
        how = ", and had to be killed" if finished.killed else ""
        raise TimedOutError(f"{what} was stopped after {command.limit_s:g} s{how}", diagnostics, killed=finished.killed)
    if finished.ended is EndReason.ASKED:
        raise StoppedError(f"{what} was stopped as asked", diagnostics)
    if any(_LOCKED in d.summary and _LOCK_NOT_WRITTEN not in d.detail for d in diagnostics):
        raise StateLockedError(f"{what}: another run is at work on this state", diagnostics)
    if finished.code < 0:
        raise StoppedError(f"{what} was ended by signal {-finished.code}", diagnostics)
    raise command.failed(f"{what} failed", diagnostics)


def _addresses(planned: Iterable[ResourceChange], actions: Container[str]) -> tuple[str, ...]:
    return tuple(sorted(change.address for change in planned if change.action in actions))


def _from_text(stderr: str, ended: EndReason) -> list[Diagnostic]:
    """Return the diagnostics in what a text command printed last, from its first error on.

    From a command that was stopped only errors are taken: the embedded engine, interrupted before it handles signals,
    prints where its interpreter was.
    """
    text = _BOX.sub("", stderr).strip()
    _, is_error, errors = text.partition("Error: ")
    if not is_error and ended is not EndReason.ITSELF:
        return []
    summary, _, detail = (errors if is_error else text).partition("\n")
    return [Diagnostic("error", summary.strip(), " ".join(detail.split()))] if text else []
