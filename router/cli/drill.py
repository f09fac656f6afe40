"""Command ``stepfare drill``: interrupt machines of the sandbox to test how jobs recover."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.clock import wall_clock
from router.cli.completion import complete_jobs
from router.cli.console import CommandError, ExitCode
from router.cli.drill_stage import DrillFormat, DrillSession, open_drill_session
from router.cli.options import parse_duration_option
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP

_NOTICE_S = 30.0
_LOOK_S = 1.0

Wanted = Annotated[
    str,
    typer.Argument(
        metavar="JOB|ATTEMPT", autocompletion=complete_jobs, help="An attempt, or a job: its newest gang with machines."
    ),
]
Ranks = Annotated[
    list[int] | None,
    typer.Option("--rank", min=0, metavar="N", help="Rank of the machine; repeatable. Default: the first."),
]
Everything = Annotated[bool, typer.Option("--all", help="Every machine of the gang.")]
DeployFile = Annotated[Path | None, typer.Option("--deploy", metavar="FILE", help=DEPLOY_HELP)]
CloudsFile = Annotated[Path | None, typer.Option("--clouds", metavar="FILE", help=CLOUDS_HELP)]
Output = Annotated[DrillFormat, typer.Option("--output", "-o", help="Format.")]


def kill_node(
    wanted: Wanted,
    rank: Ranks = None,
    everything: Everything = False,
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    output: Output = DrillFormat.TEXT,
) -> ExitCode:
    """Switch a machine off without notice, as when it breaks. Sandbox only.

    \b
    stepfare drill kill-node llama-7b
    stepfare drill kill-node llama-7b --rank 1 -o json
    stepfare drill kill-node llama-7b --all
    """
    from router.controller import drills

    with open_drill_session(deploy, clouds) as at:
        targets = drills.choose_targets(at.store, at.hand, wanted, _ranks(rank, everything), everything=everything)
        at.record("kill-node", targets)
        at.note(drills.kill_machines(at.hand, targets, at.mark))
        return at.end("kill-node", output)


def notice(
    wanted: Wanted,
    rank: Ranks = None,
    everything: Everything = False,
    seconds: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="S", help="Length of the notice. Default: 30, unknown with --rebalance."),
    ] = None,
    no_kill: Annotated[bool, typer.Option("--no-kill", help="Send a false alarm: the machine stays.")] = False,
    rebalance: Annotated[
        bool, typer.Option("--rebalance", help="Send only a hint of a risk; the machine stays.")
    ] = False,
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    output: Output = DrillFormat.TEXT,
) -> ExitCode:
    """Send a machine an interruption notice, as a cloud does with spot machines, and preempt it afterwards.

    The command runs until the machine is switched off; Ctrl-C leaves it alive. Sandbox only.

    \b
    stepfare drill notice llama-7b
    stepfare drill notice llama-7b --rank 1 --seconds 120
    stepfare drill notice llama-7b --rebalance
    """
    from router.controller import drills

    with open_drill_session(deploy, clouds) as at:
        targets = drills.choose_targets(at.store, at.hand, wanted, _ranks(rank, everything), everything=everything)
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
    wanted: Annotated[
        str,
        typer.Argument(metavar="ZONE|REGION|JOB", help="A zone, a region, or a job, for the places of its machines."),
    ],
    seconds: Annotated[float, typer.Option(min=0.0, metavar="S", help="Length of the notice; 0: no notice.")] = 0.0,
    lasts: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="Time until it opens again. Default: until `drill zone-up`."),
    ] = None,
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    output: Output = DrillFormat.TEXT,
) -> ExitCode:
    """Close a zone or a region: all machines there are preempted, and none can be obtained. Sandbox only.

    With --for the command runs until the place is open again; Ctrl-C opens it at once and leaves machines alive.

    \b
    stepfare drill zone-down sandbox-east-a --for 10m
    stepfare drill zone-down llama-7b --seconds 30
    stepfare drill zone-down sandbox-east
    """
    from router.controller import drills

    length = parse_duration_option("--for", lasts)
    _check_seconds(seconds)
    with open_drill_session(deploy, clouds) as at:
        where = drills.find_places(at.store, at.hand, wanted, at.places)
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
    wanted: Annotated[
        list[str] | None, typer.Argument(metavar="[ZONE|REGION]...", help="Places to open. Default: all closed ones.")
    ] = None,
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    output: Output = DrillFormat.TEXT,
) -> ExitCode:
    """Open zones and regions that `drill zone-down` closed.

    \b
    stepfare drill zone-up sandbox-east-a
    stepfare drill zone-up
    """
    from router.controller import drills

    with open_drill_session(deploy, clouds) as at:
        closed = sorted({one.place for one in at.stock.closed(wall_clock().timestamp())})
        if unknown := sorted(set(wanted or ()) - set(closed)):
            remedy = f"closed: {', '.join(closed)}" if closed else "nothing is closed"
            raise InvalidInputError.single(f"{unknown[0]} is not closed", remedy=remedy)
        where = drills.open_zones(at.stock, wanted or closed)
        console.note(f"open again: {', '.join(where)}" if where else "nothing was closed")
        return at.end("zone-up", output, places=list(where))


def slow_node(
    wanted: Wanted,
    rank: Ranks = None,
    everything: Everything = False,
    lasts: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="Duration. Default: until Ctrl-C.")
    ] = None,
    factor: Annotated[
        float, typer.Option(min=1.1, max=100.0, help="How many times as long a step takes, about.")
    ] = 3.0,
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    output: Output = DrillFormat.TEXT,
) -> ExitCode:
    """Slow down the training on a machine by pausing and resuming it in turns. Sandbox only.

    The agent is not slowed down. The training is at full speed again when the command ends, however it ends.

    \b
    stepfare drill slow-node llama-7b --for 2m
    stepfare drill slow-node llama-7b --rank 1 --factor 5
    """
    from providers.sandbox.throttle import TrainingThrottle
    from router.controller import drills

    length = parse_duration_option("--for", lasts)
    with open_drill_session(deploy, clouds) as at:
        targets = drills.choose_targets(at.store, at.hand, wanted, _ranks(rank, everything), everything=everything)
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


def _ranks(ranks: list[int] | None, everything: bool) -> tuple[int, ...]:
    if ranks and everything:
        raise InvalidInputError.single("is all of them already", field="--all", remedy="give --rank or --all")
    return tuple(ranks or ())


def _check_seconds(seconds: float | None) -> float | None:
    if seconds is not None and not math.isfinite(seconds):
        raise InvalidInputError.single(f"{seconds:g} is no number of seconds", field="--seconds")
    return seconds


def _any_up(at: DrillSession, machines: set[str]) -> Callable[[], bool]:
    """Return a function that tells whether any of the machines runs, looked up once a second."""
    last_look = [time.monotonic(), True]

    def is_any() -> bool:
        if last_look[1] and time.monotonic() - last_look[0] >= _LOOK_S:
            last_look[:] = time.monotonic(), any(machine.id in machines for machine in at.hand.up())
        return bool(last_look[1])

    return is_any
