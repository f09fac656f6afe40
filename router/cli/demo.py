"""Command ``stepfare demo``: a whole run on a simulated cloud, from prices to a finished training, by user commands."""

from __future__ import annotations

import json
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import IO, Annotated, Any

import typer

from pricing.money import ZERO, Usd
from router.app.showback import report_of_ledger
from router.cli import console
from router.cli.console import CommandError, ExitCode
from router.cli.options import wall_clock
from router.demo.stage import (
    NotTrainedError,
    TrainingResult,
    count_gangs,
    find_differences,
    read_step_count,
    read_training_result,
    train_undisturbed,
    write_demo_files,
)
from router.ledger.entry import LedgerEntryKind
from router.render.tables import format_table, wrap_text
from router.showback.apportion import subtract_known
from router.showback.report.query import ReportQuery
from router.showback.report.values import CellKind, CellValue, ShowbackReport, short_text
from router.state.store import StateStore

_HEADER = ("TEAM", "JOB", "COST", "WORK", "WASTE", "PER 1000 STEPS", "ON DEMAND", "SAVED, NET")
_WIDTH = 78

_JOB = "letters"
_APPLY = "stepfare apply plan.json --book sandbox --limits limits.yaml --jobs job.yaml --yes --follow"
_DESTROY = "stepfare destroy --all --yes"
# Share of the training done, drill command to run then, and the line printed before it.
_DRILLS = (
    (0.2, f"stepfare drill notice {_JOB} --rank 1 --seconds 20", "The cloud preempts a machine, with notice."),
    (0.45, f"stepfare drill notice {_JOB} --rank 0 --seconds 20", "And again, now the machine of rank 0."),
    (0.7, f"stepfare drill zone-down {_JOB}", "A whole zone fails, without notice."),
)
# With fewer steps the training would end before the machines could be preempted.
_LEAST_STEPS = 200


def demo(
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="FOLDER", help="Folder for all files; default: a new one.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the new folder after success.")] = False,
    steps: Annotated[int, typer.Option(min=1, max=20_000, help="Steps of the training, 20 a second.")] = 400,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the text to learn.")] = 0,
    calm: Annotated[bool, typer.Option("--calm", help="Preempt no machines.")] = False,
) -> None:
    """Run a whole training on a simulated cloud, with three interruptions, in about a minute and a half.

    The demo fetches prices, plans, provisions two machines, trains on them, loses them three times, resumes elsewhere
    each time, releases everything and reports the cost. The machines are processes of this computer, their prices are
    simulated, and no cloud account is touched. Everything else is as in production: Terraform, the node agent, the
    state, the ledger. Use --keep to look at the files afterwards.

    \b
    stepfare demo
    stepfare demo --dir my-demo --steps 2000

    The exit code is 0 only if every step was trained with exactly the losses of an uninterrupted training, no saved
    step was repeated, the cost is in the ledger, and nothing is left running.
    """
    began = time.monotonic()
    place = _empty_folder(folder)
    commands = DemoCommands(place, _environment(place, dict(os.environ)))  # noqa: TID251
    with commands.listening():
        results = _run_demo(commands, steps, seed, calm=calm or steps < _LEAST_STEPS)
    console.out(results.text(time.monotonic() - began))
    if folder is None and not keep:
        shutil.rmtree(place)
        console.out(f"\n{place} is removed; --keep leaves it for you to look at.")
    else:
        console.out(f"\nAll of it lies in {place}: STEPFARE_HOME={shlex.quote(str(place / 'home'))} stepfare status")


@dataclass(frozen=True)
class _Results:
    trained: TrainingResult
    spent: str
    machines: int
    gangs: int
    lost: int

    def text(self, seconds: float) -> str:
        t = self.trained
        times = f", on {self.gangs} gangs one after the other" if self.gangs > 1 else ""
        return (
            f"\n{console.style_text('Done', 'bold')} in {seconds:.0f} s.\n"
            f"  trained     {t.steps} steps without a gap on {self.machines} machines{times}\n"
            f"  lost        {self.lost} steps that were saved; {t.again} that were not yet, done again\n"
            f"  the same    as uninterrupted: every loss and the last checkpoint, to the last bit\n"
            f"  loss        {t.first_loss:.4f} in step 1, {t.last_loss:.4f} in step {t.steps}\n"
            f"  checkpoint  {t.checkpoint.name}, {t.checkpoint.stat().st_size:,} bytes\n"
            f"  spent       ${self.spent} by the ledger\n"
            f"  left over   nothing: no machine, no process"
        )


def _run_demo(commands: DemoCommands, steps: int, seed: int, *, calm: bool) -> _Results:
    """Play the demo and return its results. If it fails or is interrupted, release what runs."""
    try:
        return _play(commands, steps, seed, calm=calm)
    except KeyboardInterrupt:
        console.note("\ninterrupted: releasing what runs")
        _release(commands)
        raise
    except (DemoCommandError, NotTrainedError) as error:
        console.note(f"\n{error}", "error")
        _release(commands, "stepfare status", f"stepfare logs {_JOB} --tail 20")
        home = commands.folder / "home"
        remedy = f"look into {home}: logs/ has the output of each rank, runs/ what Terraform did"
        raise CommandError(f"the demo failed: {error}", remedy=remedy) from None


def _play(commands: DemoCommands, steps: int, seed: int, *, calm: bool) -> _Results:
    place = commands.folder
    attempts = 1 if calm else 1 + len(_DRILLS)
    names = write_demo_files(place, steps, seed, attempts)
    _tell(
        f"A job, and a simulated cloud to run it on: {', '.join(names)} in {place}.",
        "The job wants two machines with one H100 each, within three hours.",
    )
    _tell("1. What does the cloud sell? Its answer becomes a price book of its own.")
    commands.show("stepfare prices refresh --cloud sandbox")
    _tell("2. Where does a step cost least? The plan says what to buy, and what each machine may cost at most.")
    commands.show("stepfare plan job.yaml --book sandbox --limits limits.yaml --out plan.json")
    _tell("3. Does the plan still hold at current prices?")
    commands.show("stepfare plan check plan.json --book sandbox --limits limits.yaml")
    _tell(
        "4. Provision the machines, all or none; train; release them. Without --yes it would ask first.",
        "Beside it, as in another terminal, the output of rank 0.",
    )
    logs = place / "home" / "logs"
    log = SideCommand(f"stepfare logs {_JOB} --rank 0 --follow", lambda: any(logs.glob("*/rank-0.log")))
    commands.show(_APPLY, log, *(() if calm else _interruptions(place, steps)))
    _tell("5. What did it cost?")
    commands.show("stepfare status --all")
    _tell("6. Is anything left? (Resources of other installations are shown, and never touched.)")
    commands.show("stepfare sweep")
    _tell("7. The same training in one uninterrupted process, to compare.")
    reference = train_undisturbed(place, steps, seed, commands.environment)
    results = _check_results(commands, read_training_result(place, steps), reference, gangs=attempts)
    _tell("8. What finance sees of it, by the ledger: `stepfare showback` in short, dollars.")
    console.out(summarize_spending(place / "home", wall_clock()))
    return results


def _interruptions(place: Path, steps: int) -> list[SideCommand]:
    """Return the drill commands, each with the condition under which it starts."""

    # On a slow computer the old gang may still be leaving at the next share; only a new gang is interrupted again.
    def after(share: float, previous_gangs: int) -> Callable[[], bool]:
        return lambda: read_step_count(place) >= share * steps and count_gangs(place) > previous_gangs

    return [
        SideCommand(line, after(share, previous_gangs), says)
        for previous_gangs, (share, line, says) in enumerate(_DRILLS)
    ]


def _check_results(
    commands: DemoCommands, trained: TrainingResult, reference: TrainingResult, *, gangs: int
) -> _Results:
    """Return the results according to the state. Raises DemoCommandError if they are not those of a complete demo."""
    if changed := find_differences(trained, reference):
        raise DemoCommandError(f"other than uninterrupted: {', '.join(changed[:3])}")
    status = json.loads(commands.ask("stepfare status --all -o json"))
    gangs_made = [gang for gang in status["gangs"] if gang["job"] == _JOB]
    finished = [gang for gang in gangs_made if gang["state"] == "finished"]
    if not finished or any(gang["gone_at"] is None for gang in gangs_made):
        raise DemoCommandError(f"by `stepfare status`, {_JOB} has not finished or its machines are not gone")
    metered = _metered(commands.folder / "home" / "state.db")
    if metered <= ZERO or status["spent_usd"] != str(metered):
        raise DemoCommandError(f"`stepfare status` says ${status['spent_usd']} were spent, the ledger ${metered}")
    sweep = json.loads(commands.ask("stepfare sweep -o json"))
    orphans = [orphan["what"] for orphan in sweep["orphans"] if orphan["ours"]]
    if orphans or sweep["lost"] or sweep["gaps"]:
        raise DemoCommandError(f"by `stepfare sweep`, not all is released: {', '.join(orphans) or sweep}")
    if len(gangs_made) < gangs:
        raise DemoCommandError(
            f"machines were interrupted {gangs - 1} times, but only {len(gangs_made)} gangs were made"
        )
    repeated = _repeated_steps(gangs_made)
    if repeated:
        raise DemoCommandError(f"{repeated} steps that were saved were done again")
    return _Results(trained, status["spent_usd"], finished[0]["machines"], len(gangs_made), repeated)


def _repeated_steps(gangs: list[dict[str, int]]) -> int:
    """Return the number of steps confirmed as saved that the next gang did not resume from."""
    return sum(max(0, one["kept_step"] - other["first_step"]) for one, other in pairwise(gangs))


def _metered(database: Path) -> Usd:
    with StateStore.open(f"sqlite:///{database}", now=wall_clock()) as store:
        return Usd.total(entry.usd for entry in store.ledger.entries(kind=LedgerEntryKind.METERED))


def _release(commands: DemoCommands, *first: str) -> None:
    """Release everything, after showing the commands in ``first``. Failures are only reported."""
    if not (commands.folder / "home" / "state.db").exists():
        return
    commands.interrupted.clear()
    for line in (*first, _DESTROY):
        try:
            commands.show(line)
        except DemoCommandError as error:
            console.note(str(error))


def _environment(place: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the demo's commands.

    It is the user's environment with the demo's stepfare settings only; on the machines `python` is this interpreter.
    """
    inherited = {name: value for name, value in environment.items() if not name.startswith("STEPFARE_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    columns = shutil.get_terminal_size().columns - 2
    return {
        **inherited,
        "STEPFARE_HOME": str(place / "home"),
        "STEPFARE_CLOUDS": str(place / "clouds.yaml"),
        "STEPFARE_DEPLOY": str(place / "deploy.yaml"),
        "PATH": path,
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": str(max(40, columns)),
    }


def _empty_folder(folder: Path | None) -> Path:
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="stepfare-demo-")).resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CommandError(
            f"{folder} is not an empty folder", ExitCode.INVALID_INPUT, "name a new one, or leave --dir out"
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def _tell(*lines: str) -> None:
    console.out("\n" + "\n".join(lines))
    sys.stdout.flush()


def summarize_spending(home: Path, now: datetime) -> str:
    """Return a table of metered costs by team and job for each month, or a sentence without any.

    The state in ``home`` must exist.
    """
    with StateStore.open(f"sqlite:///{home / 'state.db'}", now=now) as store:
        months = sorted({entry.period for entry in store.ledger.entries(kind=LedgerEntryKind.METERED)})
        queries = (ReportQuery(month=month, now=now) for month in months)
        folders = home / "extract", home / "bills"
        reports = [report_of_ledger(store, query, *folders) for query in queries]
    return "\n".join(line for report in reports for line in summary_lines(report)) or "Nothing was metered."


def summary_lines(report: ShowbackReport) -> Iterator[str]:
    """Yield a table of jobs with work and waste, waste by kind, and the cost of interruptions; nothing without jobs."""
    jobs = [row for row in report.section("jobs").records() if row["machines"] is not None]
    if not jobs:
        return
    rows = [
        (
            str(row["team"] or "-"),
            str(row["job"]),
            *map(_money, (row["billed"], _work(row), row["waste"])),
            *map(_money, (row["per_1000_steps"], row["on_demand"], row["saved_net"])),
        )
        for row in jobs
    ]
    yield format_table(_HEADER, rows, frozenset(_HEADER[2:]), {})
    kinds = [f"{row['use']} {_money(row['billed'])}" for row in report.section("waste").records()]
    if kinds:
        yield wrap_text(f"waste: {', '.join(kinds)}", "  ", _WIDTH)
    for row in jobs:
        if row["restart_on_demand"]:
            what = (
                f"{row['job']}: spot saved {_money(row['saved'])}; less {_money(row['restart_on_demand'])}, which is "
                "what lost work and new starts, that only interruptions made, would have cost on demand"
            )
            yield wrap_text(what, "  ", _WIDTH)


def _work(job: dict[str, CellValue]) -> Decimal | None:
    return subtract_known(_amount(job["machines"]), _amount(job["waste"]) or Decimal(0))


def _money(cell: CellValue) -> str:
    """Return an amount with four decimals, because a demo costs very little."""
    return short_text(cell, CellKind.MONEY) if cell is None else f"{_amount(cell):.4f}"


def _amount(cell: CellValue) -> Decimal | None:
    return cell if isinstance(cell, Decimal) else None


_INDENT = "  "
_PROGRAM = "from router.cli.main import main; main()"
# Time limit for the work that follows Ctrl-C, such as releasing machines.
_SHUTDOWN_S = 120.0
# Time limit for a side command after the end of the first command.
_BESIDE_S = 5.0
_POLL_S = 0.1


class DemoCommandError(Exception):
    """A command did not do what the demo needs; the message names the command and the failure."""


@dataclass(frozen=True)
class SideCommand:
    """A side command, run as in another terminal.

    It starts once ``when`` holds, after the demo has printed ``says``, and is ended soon after the main command.
    """

    line: str
    when: Callable[[], bool]
    says: str = ""


@dataclass
class DemoCommands:
    """Runs commands in ``folder`` with ``environment``.

    Once ``interrupted`` is set, running commands get SIGINT and time to finish, then KeyboardInterrupt is raised.
    """

    folder: Path
    environment: Mapping[str, str]
    interrupted: threading.Event = field(default_factory=threading.Event)
    _lines: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Set ``interrupted`` on Ctrl-C and SIGTERM while the block runs, and do nothing else.

        No process is lost because a signal came while it was being started.
        """
        before = {number: signal.signal(number, self._interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.interrupted.set()

    def show(self, line: str, *side_commands: SideCommand) -> None:
        """Run a command and print its output as it comes.

        Raises DemoCommandError unless the command and all side commands that started end with exit code 0. Side
        commands that were ended by SIGTERM do not count. If a side command fails, the command gets SIGINT.
        """
        first = self._start(line)
        pending, started = list(side_commands), list[tuple[SideCommand, subprocess.Popen[str]]]()
        while True:
            # Looked at before the command may have ended: one that takes no time has its side commands too.
            if pending and pending[0].when():
                side_command = pending.pop(0)
                if side_command.says:
                    console.out(f"\n{side_command.says}")
                started.append((side_command, self._start(side_command.line)))
            failed = any(other.poll() not in (None, 0, -signal.SIGTERM) for _, other in started)
            if first.poll() is not None or failed or self.interrupted.is_set():
                break
            self._print_for(_POLL_S)
        if failed or self.interrupted.is_set():
            first.send_signal(signal.SIGINT)
            self._drain(first, _SHUTDOWN_S)
        for _, other in started:
            self._drain(other, _BESIDE_S)
        self._drain(first, _BESIDE_S)
        self._stop_if_interrupted()
        processes = [(line, first), *((side_command.line, other) for side_command, other in started)]
        for command, process in reversed(processes) if failed else processes:
            if process.returncode not in (0, -signal.SIGTERM):
                raise DemoCommandError(f"`{command}` ended with exit code {process.returncode}: see its output above")

    def ask(self, line: str) -> str:
        """Run a command and return its standard output, which is not shown.

        If the exit code is not 0, all output is printed and DemoCommandError is raised.
        """
        done: subprocess.CompletedProcess[str] = subprocess.run(
            _argv(line), **self._options, capture_output=True, check=False
        )
        self._stop_if_interrupted()
        if done.returncode:
            console.note(done.stdout + done.stderr)
            raise DemoCommandError(f"`{line}` ended with exit code {done.returncode}: see its output above")
        return done.stdout

    @property
    def _options(self) -> dict[str, Any]:
        return {"cwd": self.folder, "env": self.environment, "stdin": subprocess.DEVNULL, "text": True}

    def _stop_if_interrupted(self) -> None:
        if self.interrupted.is_set():
            raise KeyboardInterrupt

    def _start(self, line: str) -> subprocess.Popen[str]:
        console.out(f"\n{console.style_text(f'$ {line}', 'bold')}")
        sys.stdout.flush()
        # The command gets a session of its own, so that Ctrl-C reaches only the demo.
        process = subprocess.Popen(
            _argv(line),
            **self._options,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        threading.Thread(target=self._collect, args=(process.stdout,), daemon=True).start()
        return process

    def _collect(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._lines.put(line)

    def _print_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (remaining := end - time.monotonic()) > 0:
            try:
                console.out(f"{_INDENT}{self._lines.get(timeout=remaining)}".rstrip())
            except queue.Empty:
                break
            sys.stdout.flush()

    def _drain(self, process: subprocess.Popen[str], seconds: float) -> None:
        """Print output until the process has ended; terminate it after ``seconds``."""
        end = time.monotonic() + seconds
        while process.poll() is None:
            if time.monotonic() > end:
                process.terminate()
                end = time.monotonic() + seconds
            self._print_for(_POLL_S)
        self._print_for(_POLL_S)


def _argv(line: str) -> list[str]:
    return [sys.executable, "-P", "-c", _PROGRAM, *shlex.split(line)[1:]]
