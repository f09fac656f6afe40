"""``stepfare drill``: plays the cloud on the sandbox, so that one sees what becomes of a job when machines go."""

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
from router.cli.console import CommandError, ExitCode
from router.cli.drill_stage import DrillFormat, Stage, stage
from router.cli.options import length_of_time
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP

_NOTICE_S = 30.0
_LOOK_S = 1.0

Wanted = Annotated[str, typer.Argument(metavar="JOB|ATTEMPT", help="A job: its newest gang that has machines.")]
Ranks = Annotated[
    list[int] | None,
    typer.Option("--rank", min=0, metavar="N", help="This machine; may be given again. Left out: the first."),
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
    """Switch a machine off without a word, as when it breaks. Sandbox only.

    \b
    stepfare drill kill-node llama-7b
    stepfare drill kill-node llama-7b --rank 1 -o json
    stepfare drill kill-node llama-7b --all
    """
    from router.controller import drills

    with stage(deploy, clouds) as at:
        targets = drills.chosen(at.store, at.hand, wanted, _ranks(rank, everything), everything=everything)
        at.record("kill-node", targets)
        at.note(drills.kill(at.hand, targets, at.mark))
        return at.end("kill-node", output)


def notice(
    wanted: Wanted,
    rank: Ranks = None,
    everything: Everything = False,
    seconds: Annotated[
        float | None, typer.Option(min=0.0, metavar="S", help="So long it has; left out: 30, with --rebalance unknown.")
    ] = None,
    no_kill: Annotated[bool, typer.Option("--no-kill", help="A false alarm: nothing happens to it.")] = False,
    rebalance: Annotated[
        bool, typer.Option("--rebalance", help="Only a hint that it may be taken back; it is not.")
    ] = False,
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    output: Output = DrillFormat.TEXT,
) -> ExitCode:
    """Tell a machine that it is taken back, as a cloud does with spot machines, and switch it off when its time is
    over. The command stays until then; Ctrl-C leaves the machine alive. Sandbox only.

    \b
    stepfare drill notice llama-7b
    stepfare drill notice llama-7b --rank 1 --seconds 120
    stepfare drill notice llama-7b --rebalance
    """
    from router.controller import drills

    with stage(deploy, clouds) as at:
        targets = drills.chosen(at.store, at.hand, wanted, _ranks(rank, everything), everything=everything)
        kind = drills.REBALANCE if rebalance else drills.INTERRUPTION
        left = _NOTICE_S if seconds is None and not rebalance else _finite(seconds)
        at.record("notice", targets, kind=kind, seconds=left)
        if rebalance or no_kill or left is None:
            drills.hint(at.hand, targets, at.mark, seconds=left, kind=kind)
            at.told(targets, "was told that it may be taken back" if rebalance else f"was told that it has {left:g} s")
            at.note(drills.Done(target, drills.Outcome.LEFT) for target in targets)
        else:
            taking = drills.Taking(at.hand, targets, at.mark, seconds=left, ticks=time.monotonic)
            at.told(targets, f"was told that it has {left:g} s")
            at.wait(taking)
        return at.end("notice", output, kind=kind, seconds=left)


def zone_down(
    wanted: Annotated[
        str, typer.Argument(metavar="ZONE|REGION|JOB", help="A zone, a region, or where a job's machines are.")
    ],
    seconds: Annotated[
        float, typer.Option(min=0.0, metavar="S", help="The machines are told so long before; 0: nobody is told.")
    ] = 0.0,
    lasts: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="Until it is open again; left out: until `drill zone-up`."),
    ] = None,
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    output: Output = DrillFormat.TEXT,
) -> ExitCode:
    """A zone or a region fails: all machines there are taken back, and none is to be had. With --for the command stays
    until it is open again; Ctrl-C opens it at once and leaves alive what is. Sandbox only.

    \b
    stepfare drill zone-down sandbox-east-a --for 10m
    stepfare drill zone-down llama-7b --seconds 30
    stepfare drill zone-down sandbox-east
    """
    from router.controller import drills

    length = length_of_time("--for", lasts)
    _finite(seconds)
    with stage(deploy, clouds) as at:
        where = drills.places(at.store, at.hand, wanted, at.places)
        within = drills.within(drills.targets(at.store, at.hand), where)
        began, now = time.monotonic(), wall_clock()
        until = None if length is None else now + length
        at.record("zone-down", within, places=list(where), seconds=seconds)
        with at.interruptible():
            taking = drills.zone_down(
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
                at.told(taking.waiting, f"was told that it has {seconds:g} s")
            at.wait(taking)
            if length is not None and not at.interrupted:
                at.rest(max(0.0, began + length.total_seconds() - time.monotonic()), lambda: True)
        if length is not None or at.interrupted:
            drills.zone_up(at.stock, where, at.mark)
            console.note(f"open again: {', '.join(where)}")
        return at.end("zone-down", output, places=list(where), seconds=seconds)


def zone_up(
    wanted: Annotated[
        list[str] | None, typer.Argument(metavar="[ZONE|REGION]...", help="These; left out: all that are closed.")
    ] = None,
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    output: Output = DrillFormat.TEXT,
) -> ExitCode:
    """Open what `drill zone-down` closed.

    \b
    stepfare drill zone-up sandbox-east-a
    stepfare drill zone-up
    """
    from router.controller import drills

    with stage(deploy, clouds) as at:
        closed = sorted({one.place for one in at.stock.closed(wall_clock().timestamp())})
        if unknown := sorted(set(wanted or ()) - set(closed)):
            remedy = f"closed: {', '.join(closed)}" if closed else "nothing is closed"
            raise InvalidInputError.single(f"{unknown[0]} is not closed", remedy=remedy)
        where = drills.zone_up(at.stock, wanted or closed)
        console.note(f"open again: {', '.join(where)}" if where else "nothing was closed")
        return at.end("zone-up", output, places=list(where))


def slow_node(
    wanted: Wanted,
    rank: Ranks = None,
    everything: Everything = False,
    lasts: Annotated[str | None, typer.Option("--for", metavar="TIME", help="So long; left out: until Ctrl-C.")] = None,
    factor: Annotated[float, typer.Option(min=1.1, max=100.0, help="A step takes about so many times as long.")] = 3.0,
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    output: Output = DrillFormat.TEXT,
) -> ExitCode:
    """Slow a machine's training down by stopping it and letting it go on by turns; its agent goes on. It is at full
    speed again when the command ends, however it ends. Sandbox only.

    \b
    stepfare drill slow-node llama-7b --for 2m
    stepfare drill slow-node llama-7b --rank 1 --factor 5
    """
    from providers.sandbox.brake import Brake
    from router.controller import drills

    length = length_of_time("--for", lasts)
    with stage(deploy, clouds) as at:
        targets = drills.chosen(at.store, at.hand, wanted, _ranks(rank, everything), everything=everything)
        machines = [target.machine for target in targets]
        if not at.hand.trainings(machines)[0]:
            raise CommandError(f"no training runs there yet: {', '.join(one.id for one in machines)}")
        at.record("slow-node", targets, factor=factor)
        with Brake(at.hand, machines, factor):
            at.told(targets, f"is slowed down, {factor:g} times")
            at.rest(None if length is None else length.total_seconds(), _any_up(at, {one.id for one in machines}))
        up = {machine.id for machine in at.hand.up()}
        at.note(
            drills.Done(one, drills.Outcome.LEFT if one.machine.id in up else drills.Outcome.RELEASED)
            for one in targets
        )
        return at.end("slow-node", output, factor=factor)


def _ranks(ranks: list[int] | None, everything: bool) -> tuple[int, ...]:
    if ranks and everything:
        raise InvalidInputError.single("is all of them already", field="--all", remedy="give --rank or --all")
    return tuple(ranks or ())


def _finite(seconds: float | None) -> float | None:
    if seconds is not None and not math.isfinite(seconds):
        raise InvalidInputError.single(f"{seconds:g} is no number of seconds", field="--seconds")
    return seconds


def _any_up(at: Stage, machines: set[str]) -> Callable[[], bool]:
    """Whether any of them runs, looked up now and then."""
    looked = [time.monotonic(), True]

    def is_any() -> bool:
        if looked[1] and time.monotonic() - looked[0] >= _LOOK_S:
            looked[:] = time.monotonic(), any(machine.id in machines for machine in at.hand.up())
        return bool(looked[1])

    return is_any
