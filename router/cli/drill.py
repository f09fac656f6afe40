"""Command ``stepfare drill``: interrupt machines of the sandbox to test how jobs recover."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.money import Usd
from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.completion import complete_jobs
from router.cli.console import CommandError, ExitCode
from router.cli.options import TextFormat, TextOutput, chosen_clock, option_error, parse_duration_option, wall_clock
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, acting_user, interrupt_on_sigterm, open_state_store
from router.controller import drills
from router.controller.drills import DrillOutcome, DrillResult, DrillTarget, PreemptionDrill
from router.render.record_table import RecordTable, TableColumn, attribute_columns, json_document

if TYPE_CHECKING:
    from providers.sandbox.machines import SandboxMachines
    from providers.sandbox.stock import StockFile
    from router.app.settings import AppSettings
    from router.state.store import StateStore


_PAUSE_S = 0.1
_MARK_BYTES = 4


@dataclass
class DrillSession:
    """State of one drill.

    ``mark`` is the drill's unique name, ``places`` are the zones and regions of the sandbox, and ``done`` holds the
    results so far.
    """

    store: StateStore
    hand: SandboxMachines
    stock: StockFile
    places: frozenset[str]
    mark: str = field(default_factory=lambda: f"drill-{os.urandom(_MARK_BYTES).hex()}")
    done: list[DrillResult] = field(default_factory=list)
    interrupted: bool = False

    def record(self, drill: str, targets: Sequence[DrillTarget], **details: object) -> None:
        """Record the drill in the audit log, before it does anything."""
        machines = [f"{target.attempt} {target.rank}" for target in targets]
        now = chosen_clock()()
        self.store.audit.add(
            acting_user(), f"drill {drill}", "", Usd(0), now, id=self.mark, machines=machines, **details
        )

    def note(self, done: Iterable[DrillResult]) -> None:
        for one in done:
            console.note(_sentence(one))
            self.done.append(one)

    def announce(self, targets: Iterable[DrillTarget], text: str) -> None:
        for target in targets:
            console.note(f"{describe_target(target)} {text}")

    def wait(self, preemption: PreemptionDrill) -> None:
        """Wait until the preemption is complete. Ctrl-C leaves the remaining machines alive."""
        with self.interruptible():
            while not preemption.over:
                self.note(preemption.look())
                if not preemption.over:
                    time.sleep(min(_PAUSE_S, max(preemption.seconds, _PAUSE_S / 10)))
        if self.interrupted:
            self.note(preemption.let_go())

    def rest(self, seconds: float | None, goes_on: Callable[[], bool]) -> None:
        """Wait until ``seconds`` are over, ``goes_on`` returns False, or Ctrl-C.

        Without ``seconds`` Ctrl-C is the regular end and does not count as an interruption.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        with self.interruptible():
            while (deadline is None or time.monotonic() < deadline) and goes_on():
                time.sleep(_PAUSE_S)
        self.interrupted = self.interrupted and seconds is not None

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """End the block on Ctrl-C or SIGTERM, and set ``interrupted``."""
        try:
            with interrupt_on_sigterm():
                yield
        except KeyboardInterrupt:
            self.interrupted = True
            console.note("\ninterrupted")

    def end(self, drill: str, output: TextFormat, **more: object) -> ExitCode:
        """Print the results if JSON was asked for, and return the exit code."""
        document = {
            "drill": drill,
            "id": self.mark,
            "interrupted": self.interrupted,
            **more,
            "machines": _MACHINES.records(self.done),
        }
        if output == "json":
            console.out(json_document(document))
        if self.interrupted:
            return ExitCode.INTERRUPTED
        return ExitCode.PARTIAL if any(one.outcome is DrillOutcome.STUCK for one in self.done) else ExitCode.OK


@contextmanager
def open_drill_session(settings_files: SettingsOptions) -> Iterator[DrillSession]:
    """Open the session of a drill. A missing state is not created."""
    from providers.sandbox.machines import SandboxMachines
    from providers.sandbox.stock import StockFile

    with open_state_store(settings_files, makes=False) as (opened, store):
        yield DrillSession(store, SandboxMachines(store.id), StockFile(opened.sandbox), _places(opened))


def _places(opened: AppSettings) -> frozenset[str]:
    from providers.sandbox.default_script import make_default_script
    from providers.sandbox.script import Script

    document = opened.clouds.documents.get("sandbox")
    script = document if isinstance(document, Script) else make_default_script(wall_clock())
    return frozenset(name for region in script.regions for name in (region.name, *region.zones))


def describe_target(target: DrillTarget) -> str:
    """Return a machine as text: attempt, rank and place."""
    return f"{target.attempt} rank {target.rank} in {target.place}"


def _sentence(done: DrillResult) -> str:
    words = {
        DrillOutcome.KILLED: "was switched off",
        DrillOutcome.RELEASED: "was released before its time was over",
        DrillOutcome.LEFT: "runs on",
        DrillOutcome.STUCK: "cannot be switched off",
    }
    return f"{describe_target(done.target)} {words[done.outcome]}"


_MACHINES: RecordTable[DrillResult] = RecordTable(
    (
        *attribute_columns("job", "attempt", "rank", "region", "zone", of="target"),
        TableColumn("machine", lambda done: done.target.machine.id),
        *attribute_columns("outcome"),
    )
)
_NOTICE_S = 30.0
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """Argument and options of which machines of a gang a drill is for."""

    job_or_attempt: Annotated[
        str,
        typer.Argument(
            metavar="JOB|ATTEMPT",
            autocompletion=complete_jobs,
            help="An attempt, or a job: its newest gang with machines.",
        ),
    ]
    rank: Annotated[
        list[int] | None,
        typer.Option("--rank", min=0, metavar="N", help="Rank of the machine; repeatable. Default: the first."),
    ] = None
    everything: Annotated[bool, typer.Option("--all", help="Every machine of the gang.")] = False

    def choose(self, at: DrillSession) -> tuple[DrillTarget, ...]:
        if self.rank and self.everything:
            raise option_error("--all", "is all of them already", "give --rank or --all")
        ranks = tuple(self.rank or ())
        return drills.choose_targets(at.store, at.hand, self.job_or_attempt, ranks, everything=self.everything)


def kill_node(
    target_options: TargetOptions,
    settings_files: SettingsOptions = DEFAULT_FILES,
    output: TextOutput = "text",
) -> ExitCode:
    """Switch a machine off without notice, as when it breaks. Sandbox only.

    \b
    stepfare drill kill-node llama2-7b-sft-chat
    stepfare drill kill-node llama2-7b-sft-chat --rank 1 -o json
    stepfare drill kill-node llama2-7b-sft-chat --all
    """
    with open_drill_session(settings_files) as at:
        targets = target_options.choose(at)
        at.record("kill-node", targets)
        at.note(drills.kill_machines(at.hand, targets, at.mark))
        return at.end("kill-node", output)


def notice(
    target_options: TargetOptions,
    seconds: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="S", help="Length of the notice. Default: 30, unknown with --rebalance."),
    ] = None,
    no_kill: Annotated[bool, typer.Option("--no-kill", help="Send a false alarm: the machine stays.")] = False,
    rebalance: Annotated[
        bool, typer.Option("--rebalance", help="Send only a hint of a risk; the machine stays.")
    ] = False,
    settings_files: SettingsOptions = DEFAULT_FILES,
    output: TextOutput = "text",
) -> ExitCode:
    """Send a machine an interruption notice, as a cloud does with spot machines, and preempt it afterwards.

    The command runs until the machine is switched off; Ctrl-C leaves it alive. Sandbox only.

    \b
    stepfare drill notice llama2-7b-sft-chat
    stepfare drill notice llama2-7b-sft-chat --rank 1 --seconds 120
    stepfare drill notice llama2-7b-sft-chat --rebalance
    """
    with open_drill_session(settings_files) as at:
        targets = target_options.choose(at)
        kind = drills.REBALANCE if rebalance else drills.INTERRUPTION
        notice_s = _NOTICE_S if seconds is None and not rebalance else _check_seconds(seconds)
        at.record("notice", targets, kind=kind, seconds=notice_s)
        if rebalance or no_kill or notice_s is None:
            drills.announce_to(at.hand, targets, at.mark, seconds=notice_s, kind=kind)
            at.announce(
                targets, "was told that it may be preempted" if rebalance else f"was told that it has {notice_s:g} s"
            )
            at.note(drills.DrillResult(target, drills.DrillOutcome.LEFT) for target in targets)
        else:
            preemption = drills.PreemptionDrill(at.hand, targets, at.mark, seconds=notice_s, ticks=time.monotonic)
            at.announce(targets, f"was told that it has {notice_s:g} s")
            at.wait(preemption)
        return at.end("notice", output, kind=kind, seconds=notice_s)


def zone_down(
    place_or_job: Annotated[
        str,
        typer.Argument(metavar="ZONE|REGION|JOB", help="A zone, a region, or a job, for the places of its machines."),
    ],
    seconds: Annotated[float, typer.Option(min=0.0, metavar="S", help="Length of the notice; 0: no notice.")] = 0.0,
    lasts: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="Time until it opens again. Default: until `drill zone-up`."),
    ] = None,
    settings_files: SettingsOptions = DEFAULT_FILES,
    output: TextOutput = "text",
) -> ExitCode:
    """Close a zone or a region: all machines there are preempted, and none can be obtained. Sandbox only.

    With --for the command runs until the place is open again; Ctrl-C opens it at once and leaves machines alive.

    \b
    stepfare drill zone-down sandbox-east-a --for 10m
    stepfare drill zone-down llama2-7b-sft-chat --seconds 30
    stepfare drill zone-down sandbox-east
    """
    length = parse_duration_option("--for", lasts)
    _check_seconds(seconds)
    with open_drill_session(settings_files) as at:
        where = drills.find_places(at.store, at.hand, place_or_job, at.places)
        within = drills.targets_in(drills.find_targets(at.store, at.hand), where)
        began, now = time.monotonic(), wall_clock()
        until = None if length is None else now + length
        at.record("zone-down", within, places=list(where), seconds=seconds)
        with at.interruptible():
            preemption = drills.close_zones(
                at.store,
                at.hand,
                at.stock,
                where,
                at.mark,
                seconds=seconds,
                ticks=time.monotonic,
                until=None if until is None else until.timestamp(),
            )
            console.note(f"closed: {', '.join(where)}" + (f", until {until:%H:%M:%SZ}" if until is not None else ""))
            if seconds:
                at.announce(preemption.waiting, f"was told that it has {seconds:g} s")
            at.wait(preemption)
            if length is not None and not at.interrupted:
                at.rest(max(0.0, began + length.total_seconds() - time.monotonic()), lambda: True)
        if length is not None or at.interrupted:
            drills.open_zones(at.stock, where, at.mark)
            console.note(f"open again: {', '.join(where)}")
        return at.end("zone-down", output, places=list(where), seconds=seconds)


def zone_up(
    places: Annotated[
        list[str] | None, typer.Argument(metavar="[ZONE|REGION]...", help="Places to open. Default: all closed ones.")
    ] = None,
    settings_files: SettingsOptions = DEFAULT_FILES,
    output: TextOutput = "text",
) -> ExitCode:
    """Open zones and regions that `drill zone-down` closed.

    \b
    stepfare drill zone-up sandbox-east-a
    stepfare drill zone-up
    """
    with open_drill_session(settings_files) as at:
        closed = sorted({one.place for one in at.stock.closed(wall_clock().timestamp())})
        if unknown := sorted(set(places or ()) - set(closed)):
            remedy = f"closed: {', '.join(closed)}" if closed else "nothing is closed"
            raise InvalidInputError.single(f"{unknown[0]} is not closed", remedy=remedy)
        where = drills.open_zones(at.stock, places or closed)
        console.note(f"open again: {', '.join(where)}" if where else "nothing was closed")
        return at.end("zone-up", output, places=list(where))


def slow_node(
    target_options: TargetOptions,
    lasts: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="Duration. Default: until Ctrl-C.")
    ] = None,
    factor: Annotated[
        float, typer.Option(min=1.1, max=100.0, help="How many times as long a step takes, about.")
    ] = 3.0,
    settings_files: SettingsOptions = DEFAULT_FILES,
    output: TextOutput = "text",
) -> ExitCode:
    """Slow down the training on a machine by pausing and resuming it in turns. Sandbox only.

    The agent is not slowed down. The training is at full speed again when the command ends, however it ends.

    \b
    stepfare drill slow-node llama2-7b-sft-chat --for 2m
    stepfare drill slow-node llama2-7b-sft-chat --rank 1 --factor 5
    """
    from providers.sandbox.throttle import TrainingThrottle

    length = parse_duration_option("--for", lasts)
    with open_drill_session(settings_files) as at:
        targets = target_options.choose(at)
        machines = [target.machine for target in targets]
        if not at.hand.trainings(machines)[0]:
            raise CommandError(f"no training runs there yet: {', '.join(one.id for one in machines)}")
        at.record("slow-node", targets, factor=factor)
        with TrainingThrottle(at.hand, machines, factor):
            at.announce(targets, f"is slowed down, {factor:g} times")
            at.rest(None if length is None else length.total_seconds(), _any_up(at, {one.id for one in machines}))
        up = {machine.id for machine in at.hand.up()}
        at.note(
            drills.DrillResult(one, drills.DrillOutcome.LEFT if one.machine.id in up else drills.DrillOutcome.RELEASED)
            for one in targets
        )
        return at.end("slow-node", output, factor=factor)


def _check_seconds(seconds: float | None) -> float | None:
    if seconds is not None and not math.isfinite(seconds):
        raise option_error("--seconds", f"{seconds:g} is no number of seconds")
    return seconds


def _any_up(at: DrillSession, machines: set[str]) -> Callable[[], bool]:
    """Return a function that tells whether any of the machines runs, looked up once a second."""
    last_look = [time.monotonic(), True]

    def is_any() -> bool:
        if last_look[1] and time.monotonic() - last_look[0] >= _LOOK_S:
            last_look[:] = time.monotonic(), any(machine.id in machines for machine in at.hand.up())
        return bool(last_look[1])

    return is_any
