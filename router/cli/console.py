"""Console output: data on stdout, all else on stderr; exit codes; errors without traceback. No other module prints."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Any, TextIO, TypeVar

import typer

from pricing.atomic_file import write_atomic
from pricing.problems import InvalidInputError, Problem
from router.render.record_table import RecordTable, json_document
from router.render.tables import PLAIN, WIDTH, Screen, clip_text

# Key in the context of a command: the number of words after `--`, or None if there was no `--`.
WORDS_AFTER_DASHES = "stepfare.behind"
R = TypeVar("R")
_MOST_PROBLEMS = 50

# Colours are few: what went wrong, what may be wrong, and headings.
_STYLES: dict[str, dict[str, Any]] = {
    "error": {"fg": "red", "bold": True},
    "warning": {"fg": "yellow"},
    "bold": {"bold": True},
}


class ExitCode(IntEnum):
    """Exit code of the process; documented in docs/commands.md."""

    OK = 0
    FAILURE = 1
    INVALID_INPUT = 2
    UNPLACED = 3
    OVER_BUDGET = 4
    PARTIAL = 5
    STALE = 6
    CREDENTIALS = 7
    INTERRUPTED = 130


class CommandError(Exception):
    """An expected failure of a command: the message goes to stderr, ``code`` to the shell."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILURE, remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.remedy = remedy


class CommandExitError(Exception):
    """Ends the process with ``code`` after all messages were printed."""

    def __init__(self, code: ExitCode) -> None:
        super().__init__(code)
        self.code = code


def out(text: str) -> None:
    """Print data to stdout, with one newline at its end."""
    _clear_progress()
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def note(text: str, style: str = "") -> None:
    """Print a line that is not data to stderr."""
    _clear_progress()
    print(style_text(text, style, sys.stderr), file=sys.stderr)


def write(text: str, file: Path | None) -> None:
    """Write data atomically to ``--out`` (a temporary file beside it is renamed); without a file print it to stdout.

    Raises CommandError if the file cannot be written.
    """
    if file is None:
        out(text)
    else:
        write_output_file(file, (text if text.endswith("\n") else f"{text}\n").encode())


def print_table(output: str, name: str, table: RecordTable[R], rows: Sequence[R], empty: str, **more: object) -> None:
    """Print rows in the format ``output``: json under ``name`` and before ``more``, csv, or a table for people.

    ``empty`` is what people read where there are no rows.
    """
    if output == "json":
        out(json_document({name: table.records(rows), **more}))
    elif output == "csv":
        out(table.csv(rows))
    else:
        out(table.text(rows, screen()) if rows else empty)


def append_line(text: str, file: Path) -> None:
    """Append one line to a file, in one write. Raises CommandError if that fails."""
    with _report_unwritable(file), file.open("a", encoding="utf-8", newline="\n") as stream:
        stream.write(f"{text}\n")


def screen(stream: TextIO | None = None, file: Path | None = None) -> Screen:
    """Return the screen that tables are drawn for: a terminal of 80 columns or more, or a pipe or file.

    The table goes to ``file`` if there is one, else to ``stream`` (stdout by default).
    """
    target = sys.stdout if stream is None else stream
    if file is not None or not target.isatty():
        return PLAIN
    # COLUMNS counts before the terminal's own answer, so that people can choose.
    width = max(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)
    return Screen(width, lambda text: style_text(text, "bold", target))


def style_text(text: str, style: str, stream: TextIO | None = None) -> str:
    """Return ``text`` in a style (error, warning, bold) if ``stream`` (stdout by default) shows colours."""
    target = sys.stdout if stream is None else stream
    return typer.style(text, **_STYLES[style]) if style and supports_colour(target) else text


def supports_colour(stream: TextIO) -> bool:
    """Return whether the stream is a terminal with colours and NO_COLOR (no-color.org) is not set."""
    environment = os.environ  # noqa: TID251  this module may read the environment
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def ask_confirmation(question: str) -> bool:
    """Ask a question on stderr and return True only if the answer is yes; the end of input counts as no.

    Stdin must be a terminal. Ctrl-C raises KeyboardInterrupt.
    """
    return _read_answer(question, "y/N").strip().lower() in ("y", "yes")


def _read_answer(question: str, hint: str) -> str:
    sys.stderr.write(f"{question} [{hint}]: ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    if not answer:
        sys.stderr.write("\n")
    return answer


def confirm(question: str, *, yes: bool) -> bool:
    """Return whether ``--yes`` was given, or else the answer. Raises InvalidInputError where nobody can be asked."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise InvalidInputError.single("nobody can be asked here", field="--yes", remedy="agree with --yes")
    return ask_confirmation(question)


def ask_text(question: str, default: str) -> str:
    """Ask a question on stderr and return the answer, or ``default`` for an empty one.

    Raises CommandError at the end of input. Stdin must be a terminal. Ctrl-C raises KeyboardInterrupt.
    """
    answer = _read_answer(question, default)
    if not answer:
        raise CommandError("the input ended before all questions were answered", ExitCode.INVALID_INPUT)
    return answer.strip() or default


# The line that is on the screen, if any: others write only after it is cleared.
_progress_lines: list[ProgressLine] = []


@contextmanager
def progress(text: str) -> Iterator[Callable[[str], None]]:
    """Show ``text`` on stderr while the block runs, and after two seconds its phase and the time.

    Yields a function that takes the phase. Nothing is shown if stderr is not a terminal.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    line = ProgressLine(text, sys.stderr, shutil.get_terminal_size((WIDTH, 24)).columns)
    _progress_lines.append(line)
    line.start_ticking()
    try:
        yield line.show_phase
    finally:
        line.end()
        _progress_lines.remove(line)


def _clear_progress() -> None:
    for line in _progress_lines:
        line.clear()


def show_problems(error: InvalidInputError) -> None:
    """Print each problem on stderr as ``file:line:column: error: field: what``, with its remedy below."""
    problems = dict.fromkeys(error.problems)
    for problem in list(problems)[:_MOST_PROBLEMS]:
        note("\n".join(_lines(problem)))
    if len(problems) > _MOST_PROBLEMS:
        note(f"... and {len(problems) - _MOST_PROBLEMS} more")
    if len(problems) > 1:
        note(f"{len(problems)} problems; nothing was done", "bold")


def warn(problem: Problem) -> None:
    """Print a probable mistake on stderr as ``file:line:column: warning: field: what``."""
    note("\n".join(_lines(problem, "warning")))


def _lines(problem: Problem, kind: str = "error") -> Iterator[str]:
    place = f"{problem.where}: " if problem.where else ""
    field = f"{problem.field}: " if problem.field else ""
    yield f"{place}{style_text(kind, kind, sys.stderr)}: {field}{problem.what}"
    if problem.remedy:
        yield f"    {problem.remedy}"


@contextmanager
def handle_command_errors() -> Iterator[None]:
    """Turn every expected error of a command into a message and :class:`CommandExitError` with its exit code."""
    try:
        with _show_errors():
            yield
            sys.stdout.flush()
    except CommandExitError:
        _drop_unwritten_output()
        raise


def _drop_unwritten_output() -> None:
    """Drop output that cannot be written: the interpreter would fail at it once more, with an exit code of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# The base of the errors of arguments and options, which typer exports under no name of its own.
_UsageError: Any = typer.BadParameter.__mro__[1]


@contextmanager
def _show_errors() -> Iterator[None]:
    try:
        yield
    except InvalidInputError as error:
        show_problems(error)
        raise CommandExitError(ExitCode.INVALID_INPUT) from None
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help
            raise
        what = error.format_message().replace("Value error, ", "").rstrip(".")
        remedy = f"see `{error.ctx.command_path} -h`" if error.ctx is not None else "see `stepfare -h`"
        show_problems(InvalidInputError.single(f"{what[:1].lower()}{what[1:]}", remedy=remedy))
        raise CommandExitError(ExitCode.INVALID_INPUT) from None
    except CommandError as error:
        show_problems(InvalidInputError([Problem("", "", str(error), error.remedy)]))
        raise CommandExitError(error.code) from None
    except KeyboardInterrupt:
        note("\ninterrupted")
        raise CommandExitError(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of the output has closed the pipe.
        raise CommandExitError(ExitCode.OK) from None
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        show_problems(InvalidInputError.single(f"{name}{error.strerror or error}"))
        raise CommandExitError(ExitCode.FAILURE) from None


class ProgressBars:
    """Progress of several tasks on stderr: bars on a terminal, else one line per finished task."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._tasks: dict[str, Any] = {}
        self._ended: set[str] = set()

    def advance(self, name: str, done: int, total: int | None, remark: str) -> None:
        """Report that ``done`` of ``total`` parts of ``name`` are finished; ``total`` is None while unknown."""
        if self._display is not None:
            if name not in self._tasks:
                self._tasks[name] = self._display.add_task(name, total=None)
            self._display.update(self._tasks[name], completed=done, total=total, description=f"{name}{remark}")
        elif total is not None and done == total and name not in self._ended:
            self._ended.add(name)
            note(f"{name}: {done} of {total}{remark}")


@contextmanager
def bars() -> Iterator[ProgressBars]:
    """Show :class:`ProgressBars` while the block runs."""
    if not sys.stderr.isatty():
        yield ProgressBars(None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Display

    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Display(*parts, console=Console(stderr=True), transient=True) as display:
        yield ProgressBars(display)


@contextmanager
def parallel_bar(name: str, option: str) -> Iterator[Callable[[int, int], None]]:
    """Show the progress of parallel work; yields a function that takes how many parts of all are done.

    Raises CommandError where a process was killed; ``option`` is that of the number of processes.
    """
    from concurrent.futures.process import BrokenProcessPool

    try:
        with bars() as shown:
            yield lambda done, total: shown.advance(name, done, total, "")
    except BrokenProcessPool:
        raise CommandError("a process was killed, perhaps for memory", remedy=f"fewer {option}") from None


def replace_screen(text: str) -> str:
    """Return ``text`` preceded by a command that clears the screen if stdout is a terminal, else unchanged."""
    return f"\x1b[2J\x1b[H{text}" if sys.stdout.isatty() else text


def check_output_folders(*files: Path | None) -> None:
    """Raise CommandError if the folder of a file does not exist, so that a long command fails at its start."""
    for file in files:
        if file is not None and not file.parent.is_dir():
            raise CommandError(f"{file}: cannot be written: there is no folder {file.parent}")


def write_output_file(file: Path, content: bytes) -> None:
    """Write content to a file atomically. Raises CommandError if it cannot be written."""
    with _report_unwritable(file):
        write_atomic(file, content)


@contextmanager
def _report_unwritable(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CommandError(f"{file}: cannot be written: {error.strerror or error}") from None


_QUIET_S = 2.0
_TICK_S = 1.0
# One lock for all lines. No process is forked while a line is being drawn: a child would wait for the lock forever.
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class ProgressLine:
    """The line of one task, on a stream that is a terminal of ``width`` columns."""

    def __init__(self, text: str, stream: TextIO, width: int = 80, clock: Callable[[], float] = time.monotonic) -> None:
        self._text, self._stream, self._width, self._clock = text, stream, width, clock
        self._began = clock()
        self._phase = ""
        self._shown = 0
        self._ended = threading.Event()

    def show_phase(self, phase: str) -> None:
        """Say what the task is at now."""
        with _lock:
            self._phase = phase
            self.draw()

    def draw(self) -> None:
        with _lock:
            line = clip_text(self.line(), self._width - 1)
            self._stream.write(f"\r{line.ljust(self._shown)}")
            self._stream.flush()
            self._shown = len(line)

    def line(self) -> str:
        """Return the task, from two seconds on its phase instead, and the time since it began."""
        seconds = self._clock() - self._began
        if seconds < _QUIET_S:
            return f"{self._text} ..."
        return f"{self._phase or self._text} ({format_seconds(seconds)})"

    def clear(self) -> None:
        """Remove the line from the screen, so that others may write; the next tick draws it again."""
        with _lock:
            if self._shown:
                self._stream.write(f"\r{' ' * self._shown}\r")
                self._stream.flush()
            self._shown = 0

    def start_ticking(self) -> None:
        """Draw the line now, and again every second in a thread, until :meth:`end`."""
        self.draw()
        threading.Thread(target=self._tick, daemon=True, name="progress").start()

    def end(self) -> None:
        with _lock:
            self._ended.set()
            self.clear()

    def _tick(self) -> None:
        while not self._ended.wait(_TICK_S):
            with _lock:
                if not self._ended.is_set():
                    self.draw()


def format_seconds(seconds: float) -> str:
    """Return a length of time such as ``14 s`` or ``2 min 05 s``."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
