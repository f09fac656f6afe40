"""Commands ``stepfare checkpoint watch`` and ``run``: the uploader beside a training."""

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
from router.cli.checkpoint_options import URL_HELP, build_rate_limit, resolve_checkpoint_store
from router.cli.console import WORDS_AFTER_DASHES, CommandError, ExitCode

CONTROL, RANK = "STEPFARE_CONTROL", "NODE_RANK"
STORE, RESUME = "STEPFARE_CHECKPOINT_STORE", "STEPFARE_RESUME_MANIFEST"
_MEGABIT = 1_000_000 / 8
_PARALLEL, _KEEP, _GRACE = 8, 3, 600.0
_NOT_FOUND = 127
_URL_HELP = f"Store, as for push; default: {STORE}, which the agent sets."
_HERE = "from router.cli.main import main; main()"

Keep = Annotated[int, typer.Option(min=1, metavar="N", help="Checkpoints to keep in the store.")]
Grace = Annotated[float, typer.Option(min=0, metavar="S", help="Seconds for the last copies at the end.")]


def watch(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder in which the training saves.")],
    url: Annotated[str | None, typer.Argument(metavar="URL", help=_URL_HELP, show_default=False)] = None,
    keep: Keep = _KEEP,
    max_mbps: Mbps = None,
    parallel: Parallel = _PARALLEL,
    grace: Grace = _GRACE,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", help="Run until stdin ends; ignore signals, which are for the training.")
    ] = False,
) -> ExitCode:
    """Copy each checkpoint to durable storage as it is written, until stopped; then copy the remaining ones.

    Under a stepfare agent it answers save requests for the training, which needs STEPFARE_CHECKPOINT_URL: a checkpoint
    counts once it is in the store. While an answer is due, the bandwidth is not limited. On a machine whose NODE_RANK
    is not 0 it copies nothing and answers once the first machine has copied.

    \b
    stepfare checkpoint watch /mnt/scratch/run-7 s3://bucket/run-7

    The exit code is 5 if the newest checkpoint could not be copied within --grace.
    """
    from router.checkpoints.control_folder import UploaderControlFolder
    from router.checkpoints.uploader import Uploader, UploadSettings

    build_rate_limit(None, max_mbps)
    environment = os.environ  # noqa: TID251
    target, _ = resolve_checkpoint_store(_store(url, environment))
    control = environment.get(CONTROL)
    most = None if max_mbps is None else max_mbps * _MEGABIT
    uploader = Uploader(
        target,
        folder=folder,
        answers=UploaderControlFolder(Path(control)) if control else None,
        how=UploadSettings(environment.get(RANK, "0") == "0", keep, parallel, most),
        tell=console.note,
    )
    if uploader.run(_watch_stdin() if until_eof else _watch_signals(), grace):
        return ExitCode.OK
    console.note("the newest checkpoint is not on durable storage", "error")
    sys.stderr.flush()
    # A thread may hang in a call to the store, and a normal exit would wait for it.
    os._exit(ExitCode.PARTIAL)


def run(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder in which the training saves.")],
    url: Annotated[str | None, typer.Argument(metavar="URL", help=_URL_HELP, show_default=False)] = None,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND", help="Command of the training.", show_default=False)
    ] = None,
    keep: Keep = _KEEP,
    max_mbps: Mbps = None,
    parallel: Parallel = _PARALLEL,
    grace: Grace = _GRACE,
) -> int:
    """Fetch the newest good checkpoint, run a training, and copy its checkpoints to durable storage meanwhile.

    A separate process does the copying. The command ends when the training has ended and its last checkpoint is stored.
    If the agent names a checkpoint in another store (STEPFARE_RESUME_MANIFEST) that is newer than all in this one, that
    checkpoint is fetched.

    \b
    stepfare checkpoint run /mnt/run-7 s3://bucket/run-7 -- torchrun train.py
    stepfare checkpoint run /mnt/run-7 -- torchrun train.py

    The exit code is that of the training, or 5 if only its last checkpoint could not be copied.
    """
    import subprocess

    from router.checkpoints.trainer_process import URL, run_with_uploader

    build_rate_limit(None, max_mbps)
    arguments = [word for word in (url, *(command or ())) if word is not None]
    count = context.meta.get(WORDS_AFTER_DASHES)
    urls = arguments[: len(arguments) - count] if count is not None else arguments[:1]
    url, command = _store(urls[0] if urls else None, os.environ), arguments[len(urls[:1]) :]  # noqa: TID251
    if not command:
        raise InvalidInputError.single("there is no training to run", field="COMMAND", remedy="write it after --")
    _check_store_url(url)
    environment = {**os.environ, URL: url.partition("?")[0]}  # noqa: TID251
    # -P keeps a folder named `router` in the working directory from being imported.
    own_command = [sys.executable, "-P", "-c", _HERE, "checkpoint"]
    if environment.get(RANK, "0") == "0":
        arguments = [*own_command, "pull", url, str(folder), "--parallel", str(parallel)]
        if _is_elsewhere(resume := environment.get(RESUME, ""), url):
            arguments += ["--or-newer", resume]
        exit_code = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode
        if exit_code:
            raise CommandError(f"the newest checkpoint could not be fetched from {url}", ExitCode(exit_code))
    arguments = [*own_command, "watch", str(folder), url, "--until-eof", f"--keep={keep}", f"--parallel={parallel}"]
    arguments += [f"--grace={grace}", *([] if max_mbps is None else [f"--max-mbps={max_mbps}"])]
    try:
        return run_with_uploader(command, arguments, environment, console.note)
    except OSError as error:
        console.note(f"{command[0]}: {error.strerror}", "error")
        return _NOT_FOUND


def _store(url: str | None, environment: Mapping[str, str]) -> str:
    """Return the given URL, else the one that the agent set. Raises InvalidInputError if there is neither."""
    chosen = url or environment.get(STORE)
    if not chosen:
        raise InvalidInputError.single(
            f"none is given, and {STORE} is not set",
            field="URL",
            remedy="write one, or name the region's checkpoint_url in the deploy file",
        )
    return chosen


def _is_elsewhere(manifest: str, url: str) -> bool:
    """Return whether a URL names a manifest that is not in this store."""
    from router.checkpoints.manifest import parse_step

    folder, _, name = manifest.rpartition("/")
    here = url.partition("?")[0].removeprefix("file://").rstrip("/")
    return parse_step(name) is not None and folder.removeprefix("file://") != here


def _check_store_url(url: str) -> None:
    """Raise InvalidInputError if a URL cannot be a checkpoint store; the store itself is not contacted."""
    from urllib.parse import urlsplit

    from router.checkpoints.arrow_store import SCHEMES

    parts = urlsplit(url)
    if parts.scheme not in (*SCHEMES, "file", "") or parts.password is not None:
        raise InvalidInputError.single(f"{parts.scheme}:// is no place for checkpoints", field="URL", remedy=URL_HELP)


def _watch_signals() -> Callable[[], bool]:
    """Return a function that tells whether SIGTERM or SIGINT has arrived."""
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))
    return lambda: bool(signals)


def _watch_stdin() -> Callable[[], bool]:
    """Return a function that tells whether standard input has ended.

    The parent process ends it when the training stops. Signals to the process group are ignored.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return lambda: bool(select.select([0], [], [], 0)[0]) and not os.read(0, 4096)
