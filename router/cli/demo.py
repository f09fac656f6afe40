"""``stepfare demo``: from prices to a finished training on a made-up cloud, by the commands that a user would type."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.money import ZERO, Usd
from router.cli import console
from router.cli.console import CommandError, ExitCode

if TYPE_CHECKING:
    from router.cli.demo_commands import Beside, Commands
    from router.demo.stage import Trained

_JOB = "letters"
_APPLY = "stepfare apply plan.json --book sandbox --limits limits.yaml --jobs job.yaml --yes --follow"
_DESTROY = "stepfare destroy --all --yes"
# When so much of the training is done, as in another terminal.
_WEATHER = (
    (0.2, f"stepfare drill notice {_JOB} --rank 1 --seconds 20", "The cloud takes a machine back, and says so."),
    (0.45, f"stepfare drill notice {_JOB} --rank 0 --seconds 20", "And again, now the one that leads."),
    (0.7, f"stepfare drill zone-down {_JOB}", "A whole zone fails, without a word."),
)
# In fewer the machines would be gone before they could be taken.
_LEAST_STEPS = 200


def demo(
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="FOLDER", help="Where all of it lies; left out: a new folder.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the new folder there when all went well.")] = False,
    steps: Annotated[int, typer.Option(min=1, max=20_000, help="Steps of the training, 20 a second.")] = 400,
    seed: Annotated[int, typer.Option(min=0, help="Another text to learn.")] = 0,
    calm: Annotated[bool, typer.Option("--calm", help="Nobody takes machines back.")] = False,
) -> ExitCode:
    """Fetch prices, plan, make two machines, train on them, lose them three times, go on elsewhere each time, release
    all, and count the cost: about a minute and a half.

    The machines are processes of this computer, their prices are made up, and no cloud account is touched. All else is
    what a real night goes through: Terraform, the node agent, the state, the ledger. What lies in the folder is yours
    to look at (--keep).

    \b
    stepfare demo
    stepfare demo --dir my-demo --steps 2000

    Exit code 0 only if every step was trained with the very losses of a training that nobody disturbed, no step that
    was saved was done again, the money is in the ledger, and nothing is left running.
    """
    from router.cli.demo_commands import Commands

    began = time.monotonic()
    place = _empty_folder(folder)
    commands = Commands(place, _environment(place, dict(os.environ)))  # noqa: TID251
    with commands.listening():
        had = _had(commands, steps, seed, calm=calm or steps < _LEAST_STEPS)
    console.out(had.text(time.monotonic() - began))
    if folder is None and not keep:
        shutil.rmtree(place)
        console.out(f"\n{place} is removed; --keep leaves it for you to look at.")
    else:
        console.out(f"\nAll of it lies in {place}: STEPFARE_HOME={shlex.quote(str(place / 'home'))} stepfare status")
    return ExitCode.OK


@dataclass(frozen=True)
class _Had:
    """What came of it."""

    trained: Trained
    spent: str
    machines: int
    gangs: int
    lost: int

    def text(self, seconds: float) -> str:
        """For the end of the narrative."""
        t = self.trained
        times = f", on {self.gangs} gangs one after the other" if self.gangs > 1 else ""
        return (
            f"\n{console.styled('Done', 'good')} in {seconds:.0f} s.\n"
            f"  trained     {t.steps} steps without a gap on {self.machines} machines{times}\n"
            f"  lost        {self.lost} steps that were saved; {t.again} that were not yet, done again\n"
            f"  the same    as undisturbed: every loss and the last checkpoint, to the last bit\n"
            f"  loss        {t.first_loss:.4f} in step 1, {t.last_loss:.4f} in step {t.steps}\n"
            f"  checkpoint  {t.checkpoint.name}, {t.checkpoint.stat().st_size:,} bytes\n"
            f"  spent       ${self.spent} by the ledger\n"
            f"  left over   nothing: no machine, no process"
        )


def _had(commands: Commands, steps: int, seed: int, *, calm: bool) -> _Had:
    """What came of it; what runs when it fails or is interrupted is released."""
    from router.cli.demo_commands import FailedError
    from router.demo.stage import NotTrainedError

    try:
        return _play(commands, steps, seed, calm=calm)
    except KeyboardInterrupt:
        console.note("\ninterrupted: releasing what runs")
        _release(commands)
        raise
    except (FailedError, NotTrainedError) as error:
        console.note(f"\n{error}", "error")
        _release(commands, "stepfare status", f"stepfare logs {_JOB} --tail 20")
        home = commands.folder / "home"
        remedy = f"what there is to look at lies in {home}: logs/ is what each rank said, runs/ what Terraform did"
        raise CommandError(f"the demo failed: {error}", remedy=remedy) from None


def _play(commands: Commands, steps: int, seed: int, *, calm: bool) -> _Had:
    from router.cli.demo_commands import Beside
    from router.demo.stage import lay_out, trained, undisturbed

    place = commands.folder
    names = lay_out(place, steps, seed)
    _tell(
        f"A job, and a made-up cloud to run it on: {', '.join(names)} in {place}.",
        "The job wants two machines with one H100 each, within three hours.",
    )
    _tell("1. What does the cloud sell? Its answer becomes a price book of its own.")
    commands.show("stepfare prices refresh --cloud sandbox")
    _tell("2. Where does a step cost least? The plan says what to buy, and what each machine may cost at most.")
    commands.show("stepfare plan job.yaml --book sandbox --limits limits.yaml --out plan.json")
    _tell("3. Does it still hold at the prices of now?")
    commands.show("stepfare plan check plan.json --book sandbox --limits limits.yaml")
    _tell(
        "4. Make the machines, all or none; train; release them. Without --yes it would ask first.",
        "Beside it, as in another terminal, what rank 0 prints.",
    )
    logs = place / "home" / "logs"
    log = Beside(f"stepfare logs {_JOB} --rank 0 --follow", lambda: any(logs.glob("*/rank-0.log")))
    commands.show(_APPLY, log, *(() if calm else _weather(place, steps)))
    _tell("5. What did it cost?")
    commands.show("stepfare status --all")
    _tell("6. Is anything left? (What is there of other installations is shown, and never touched.)")
    commands.show("stepfare sweep")
    _tell("7. The same training in one process that nobody disturbs, to compare.")
    alone = undisturbed(place, steps, seed, commands.environment)
    had = _checked(commands, trained(place, steps), alone, gangs=1 if calm else 1 + len(_WEATHER))
    _tell("8. What finance sees of it, by the ledger: `stepfare showback` in short, dollars.")
    console.out(_showback(place / "home"))
    return had


def _showback(home: Path) -> str:
    from router.cli.clock import wall_clock
    from router.cli.demo_showback import spent_by_job

    return spent_by_job(home, wall_clock())


def _weather(place: Path, steps: int) -> list[Beside]:
    from router.cli.demo_commands import Beside
    from router.demo.stage import gangs_seen, steps_done

    # On a slow computer a gang that is going is still there at the next share: only a new one is taken again.
    def after(share: float, taken: int) -> Callable[[], bool]:
        return lambda: steps_done(place) >= share * steps and gangs_seen(place) > taken

    return [Beside(line, after(share, taken), says) for taken, (share, line, says) in enumerate(_WEATHER)]


def _checked(commands: Commands, trained_: Trained, alone: Trained, *, gangs: int) -> _Had:
    """What the state says of it; FailedError where that is not the end of a demo."""
    from router.cli.demo_commands import FailedError
    from router.demo.stage import differences

    if differ := differences(trained_, alone):
        raise FailedError(f"other than undisturbed: {', '.join(differ[:3])}")
    status = json.loads(commands.ask("stepfare status --all -o json"))
    made = [gang for gang in status["gangs"] if gang["job"] == _JOB]
    finished = [gang for gang in made if gang["state"] == "finished"]
    if not finished or any(gang["gone_at"] is None for gang in made):
        raise FailedError(f"by `stepfare status`, {_JOB} has not finished or its machines are not gone")
    metered = _metered(commands.folder / "home" / "state.db")
    if metered <= ZERO or status["spent_usd"] != str(metered):
        raise FailedError(f"`stepfare status` says ${status['spent_usd']} were spent, the ledger ${metered}")
    swept = json.loads(commands.ask("stepfare sweep -o json"))
    left = [orphan["what"] for orphan in swept["orphans"] if orphan["ours"]]
    if left or swept["lost"] or swept["gaps"]:
        raise FailedError(f"by `stepfare sweep`, not all is released: {', '.join(left) or swept}")
    if len(made) < gangs:
        raise FailedError(f"machines were taken {gangs - 1} times, and only {len(made)} gangs were made")
    lost = _lost_for_good(made)
    if lost:
        raise FailedError(f"{lost} steps that were saved were done again")
    return _Had(trained_, status["spent_usd"], finished[0]["machines"], len(made), lost)


def _lost_for_good(gangs: list[dict[str, int]]) -> int:
    """Steps that were confirmed to be saved, and after which the next gang did not go on."""
    return sum(max(0, one["kept_step"] - other["first_step"]) for one, other in pairwise(gangs))


def _metered(database: Path) -> Usd:
    """What the ledger says of machines that are gone."""
    from router.cli.clock import wall_clock
    from router.ledger.entry import Kind
    from router.state.store import Store

    with Store.open(f"sqlite:///{database}", now=wall_clock()) as store:
        return Usd.total(entry.usd for entry in store.ledger.entries(kind=Kind.METERED))


def _release(commands: Commands, *first: str) -> None:
    """Releases all that was made, after the commands that are to be shown ``first``; what fails is only said."""
    from router.cli.demo_commands import FailedError

    if not (commands.folder / "home" / "state.db").exists():
        return
    commands.interrupted.clear()
    for line in (*first, _DESTROY):
        try:
            commands.show(line)
        except FailedError as error:
            console.note(str(error))


def _environment(place: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The user's, but nothing of the user's own stepfare; on the machines `python` is this one."""
    kept = {name: value for name, value in given.items() if not name.startswith("STEPFARE_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), given.get("PATH", os.defpath)])
    columns = shutil.get_terminal_size().columns - 2
    return {
        **kept,
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
