"""``stepfare checkpoint watch | run``: the uploader beside a training."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.checkpoint import Mbps, Parallel
from router.cli.checkpoint_options import URL_HELP, pace_of, place
from router.cli.console import BEHIND, CommandError, ExitCode

CONTROL, RANK = "STEPFARE_CONTROL", "NODE_RANK"
STORE, RESUME = "STEPFARE_CHECKPOINT_STORE", "STEPFARE_RESUME_MANIFEST"
_MEGABIT = 1_000_000 / 8
_PARALLEL, _KEEP, _GRACE = 8, 3, 600.0
_NOT_FOUND = 127
_URL_HELP = f"As for push; left out: {STORE}, as the agent says it."
_HERE = "from router.cli.main import main; main()"

Keep = Annotated[int, typer.Option(min=1, metavar="N", help="Checkpoints that stay there.")]
Grace = Annotated[float, typer.Option(min=0, metavar="S", help="Seconds for what is left at the end.")]


def watch(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the training saves.")],
    url: Annotated[str | None, typer.Argument(metavar="URL", help=_URL_HELP, show_default=False)] = None,
    keep: Keep = _KEEP,
    max_mbps: Mbps = None,
    parallel: Parallel = _PARALLEL,
    grace: Grace = _GRACE,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", help="Run until stdin ends; signals are for the training alone.")
    ] = False,
) -> ExitCode:
    """Copy each checkpoint to durable storage as it is written, until it is stopped; then what is left. Under a
    stepfare agent it answers for the training, which has to have STEPFARE_CHECKPOINT_URL: a checkpoint counts when it
    is there. While an answer is due, nothing bounds the bandwidth. On a machine whose NODE_RANK is not 0 it only
    answers, when the first machine has copied.

    \b
    stepfare checkpoint watch /mnt/scratch/run-7 s3://bucket/run-7

    Exit code 5 when the newest checkpoint could not be copied within --grace.
    """
    from router.checkpoints.control_folder import Answers
    from router.checkpoints.uploader import How, Uploader

    pace_of(None, max_mbps)
    environment = os.environ  # noqa: TID251
    target, _ = place(_store(url, environment))
    control = environment.get(CONTROL)
    most = None if max_mbps is None else max_mbps * _MEGABIT
    uploader = Uploader(
        target,
        folder=folder,
        answers=Answers(Path(control)) if control else None,
        how=How(environment.get(RANK, "0") == "0", keep, parallel, most),
        tell=console.note,
    )
    if uploader.run(_eof() if until_eof else _signalled(), grace):
        return ExitCode.OK
    console.note("the newest checkpoint is not on durable storage", "error")
    sys.stderr.flush()
    # A thread may hang in a call to the store, and would be waited for.
    os._exit(ExitCode.PARTIAL)


def run(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the training saves.")],
    url: Annotated[str | None, typer.Argument(metavar="URL", help=_URL_HELP, show_default=False)] = None,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND", help="The training.", show_default=False)
    ] = None,
    keep: Keep = _KEEP,
    max_mbps: Mbps = None,
    parallel: Parallel = _PARALLEL,
    grace: Grace = _GRACE,
) -> int:
    """Fetch the newest good checkpoint, run a training, and copy what it saves to durable storage all the while, by a
    process of its own. Ends when the training has ended and its last checkpoint is there. Where the agent names a
    checkpoint elsewhere (STEPFARE_RESUME_MANIFEST) that is newer than all that are there, that one is fetched.

    \b
    stepfare checkpoint run /mnt/run-7 s3://bucket/run-7 -- torchrun train.py
    stepfare checkpoint run /mnt/run-7 -- torchrun train.py

    The exit code is the training's; 5 when only its last checkpoint could not be copied.
    """
    import subprocess

    from router.checkpoints.trainer_process import URL, beside

    pace_of(None, max_mbps)
    words = [word for word in (url, *(command or ())) if word is not None]
    behind = context.meta.get(BEHIND)
    named = words[: len(words) - behind] if behind is not None else words[:1]
    url, command = _store(named[0] if named else None, os.environ), words[len(named[:1]) :]  # noqa: TID251
    if not command:
        raise InvalidInputError.single("there is no training to run", field="COMMAND", remedy="write it after --")
    _is_place(url)
    environment = {**os.environ, URL: url.partition("?")[0]}  # noqa: TID251
    # -P: a folder `router` where the job runs is not ours.
    ours = [sys.executable, "-P", "-c", _HERE, "checkpoint"]
    if environment.get(RANK, "0") == "0":
        words = [*ours, "pull", url, str(folder), "--parallel", str(parallel)]
        if _is_elsewhere(resume := environment.get(RESUME, ""), url):
            words += ["--or-newer", resume]
        pulled = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode
        if pulled:
            raise CommandError(f"the newest checkpoint could not be fetched from {url}", ExitCode(pulled))
    words = [*ours, "watch", str(folder), url, "--until-eof", f"--keep={keep}", f"--parallel={parallel}"]
    words += [f"--grace={grace}", *([] if max_mbps is None else [f"--max-mbps={max_mbps}"])]
    try:
        return beside(command, words, environment, console.note)
    except OSError as error:
        console.note(f"{command[0]}: {error.strerror}", "error")
        return _NOT_FOUND


def _store(url: str | None, environment: Mapping[str, str]) -> str:
    """As given, else as the agent says it. InvalidInputError where neither is."""
    found = url or environment.get(STORE)
    if not found:
        raise InvalidInputError.single(
            f"none is given, and {STORE} is not set",
            field="URL",
            remedy="write one, or name the region's checkpoint_url in the deploy file",
        )
    return found


def _is_elsewhere(manifest: str, url: str) -> bool:
    """Whether a manifest is named that is not in this place."""
    from router.checkpoints.manifest import step_of

    folder, _, name = manifest.rpartition("/")
    here = url.partition("?")[0].removeprefix("file://").rstrip("/")
    return step_of(name) is not None and folder.removeprefix("file://") != here


def _is_place(url: str) -> None:
    """InvalidInputError where no place can be there; without asking it."""
    from urllib.parse import urlsplit

    from router.checkpoints.arrow_store import SCHEMES

    parts = urlsplit(url)
    if parts.scheme not in (*SCHEMES, "file", "") or parts.password is not None:
        raise InvalidInputError.single(f"{parts.scheme}:// is no place for checkpoints", field="URL", remedy=URL_HELP)


def _signalled() -> Callable[[], bool]:
    got: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: got.append(number))
    return lambda: bool(got)


def _eof() -> Callable[[], bool]:
    """Whether standard input has ended. Who stops the training ends it; signals to the group are not for us."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return lambda: bool(select.select([0], [], [], 0)[0]) and not os.read(0, 4096)
