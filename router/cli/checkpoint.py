"""Commands ``stepfare checkpoint``: transfer checkpoints, list and verify them, and upload beside a training."""

from __future__ import annotations

import dataclasses
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.checkpoints.arrow_store import SCHEMES, open_arrow_store
from router.checkpoints.checkpoints import CheckpointManifest, parse_step
from router.checkpoints.object_store import (
    CheckpointStore,
    FolderStore,
    IncompleteCheckpointError,
    OutOfTimeError,
    StorageError,
    open_checkpoint_store,
)
from router.checkpoints.transfer import TransferLimits
from router.cli import console
from router.cli.console import WORDS_AFTER_DASHES, CommandError, ExitCode
from router.cli.options import TableFormat, TableOutput, option_error
from router.render.record_table import RecordTable, TableColumn, json_document

if TYPE_CHECKING:
    from router.checkpoints.transfer import TransferResult

_PARALLEL = 8
_MEGABIT = 1_000_000 / 8
_MANIFEST_ENDS = ".manifest.json"

URL_HELP = "s3://, gs://, abfs(s):// or file:// URL of a store, or of a manifest in it."
UrlArgument = Annotated[str, typer.Argument(metavar="URL", help=URL_HELP)]
TrainingFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder in which the training saves.")]
StepOption = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Step of the checkpoint; default: the newest good one.")
]
SpeedLimitOption = Annotated[
    float | None, typer.Option("--max-mbps", metavar="N", help="Bandwidth limit in megabits per second.")
]
ParallelOption = Annotated[int, typer.Option(min=1, max=64, help="Files transferred at the same time.")]


@dataclass(frozen=True, slots=True)
class TransferOptions:
    """Options of how long a transfer may take, and how fast it may be."""

    seconds: Annotated[
        float | None,
        typer.Option(metavar="S", help="Time limit; a transfer that cannot end by then is not started."),
    ] = None
    max_mbps: SpeedLimitOption = None
    parallel: ParallelOption = _PARALLEL

    def downloads(self) -> Callable[..., Iterator[TransferResult]]:
        """Return how checkpoints are copied within these limits. Raises InvalidInputError."""
        from router.checkpoints.transfer import download_checkpoints

        pace = build_rate_limit(self.seconds, self.max_mbps)
        return partial(download_checkpoints, pace=pace, parallel=self.parallel, passed=report_skipped_step)


DEFAULT_TRANSFER = TransferOptions()


def resolve_checkpoint_store(url: str) -> tuple[CheckpointStore, int | None]:
    """Open the store that a URL names; the second value is the step if the URL is a manifest's, else None.

    Raises InvalidInputError if the URL names no store, or a file that is no manifest.
    """
    root, _, name = url.rpartition("/")
    step = parse_step(name)
    if step is None and name.endswith(_MANIFEST_ENDS):
        raise option_error("URL", f"{name} is no manifest's name")
    try:
        environment = os.environ  # noqa: TID251
        return open_checkpoint_store(
            url if step is None else root, lambda text: open_arrow_store(text, environment)
        ), step
    except StorageError as error:
        raise option_error("URL", str(error), error.remedy) from None


def build_rate_limit(seconds: float | None, max_mbps: float | None) -> TransferLimits:
    """Return the rate limit of a transfer. Raises InvalidInputError unless both values are finite and above zero."""
    for option, value in (("--seconds", seconds), ("--max-mbps", max_mbps)):
        if value is not None and not 0 < value < float("inf"):
            raise option_error(option, f"{value} is not above zero")
    most = None if max_mbps is None else max_mbps * _MEGABIT
    return TransferLimits(seconds=seconds, bytes_per_second=most, rate=most)


@contextmanager
def translate_storage_errors() -> Iterator[None]:
    """Translate errors of durable storage into CommandError: exit code 5 if the time ran out, else 1."""
    try:
        yield
    except OutOfTimeError as error:
        raise CommandError(str(error), ExitCode.PARTIAL, error.remedy) from None
    except StorageError as error:
        raise CommandError(str(error), ExitCode.FAILURE, error.remedy) from None
    except OSError as error:
        raise CommandError(str(error)) from None


def report_skipped_step(step: int, why: str) -> None:
    """Report a checkpoint that was skipped, and why."""
    console.note(f"step {step}: passed over: {why}", "warning")


def format_bytes(count: int) -> str:
    """Return a byte count in decimal units, such as ``81.2 GB``."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def describe_transfer(moved: TransferResult) -> str:
    """Return one line of text about a finished transfer."""
    skipped = f", {format_bytes(moved.kept)} were there" if moved.kept else ""
    speed = f", {format_bytes(int(moved.bytes / moved.seconds))}/s" if moved.bytes and moved.seconds > 0 else ""
    return f"step {moved.step}: {format_bytes(moved.bytes)} in {moved.seconds:.1f} s{speed}{skipped}: {moved.manifest}"


def push(
    folder: TrainingFolder,
    url: UrlArgument,
    step: StepOption = None,
    every: Annotated[bool, typer.Option("--all", help="Copy all checkpoints, the newest first.")] = False,
    keep: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Then delete all but the newest N from the store.")
    ] = None,
    transfer: TransferOptions = DEFAULT_TRANSFER,
    output: TableOutput = "table",
) -> None:
    """Copy checkpoints of a folder to durable storage.

    A checkpoint is complete once its manifest, which is written last, is in the store. Files that are there already
    with the same size and digest are not copied again.

    \b
    stepfare checkpoint push /mnt/scratch/run-7 s3://bucket/run-7
    stepfare checkpoint push /mnt/scratch/run-7 gs://bucket/run-7 --seconds 100

    The exit code is 5 if the time ran out.
    """
    from router.checkpoints.checkpoints import CopyJournal, remove_old_checkpoints

    fetch, (target, _) = transfer.downloads(), resolve_checkpoint_store(url)
    with translate_storage_errors():
        if not folder.is_dir():
            raise CommandError(f"{folder}: no such folder", ExitCode.INVALID_INPUT)
        journal = CopyJournal(folder.absolute(), target.url)
        moved = _print_transfers(fetch(FolderStore(folder), target, step=step, journal=journal), output, every=every)
        if not moved:
            raise CommandError(f"{folder}: no checkpoint was copied")
        for removed_step in (
            remove_old_checkpoints(target, keep, max(one.step for one in moved)) if keep is not None else ()
        ):
            console.note(f"step {removed_step}: removed there")


def pull(
    url: UrlArgument,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder from which the training resumes.")],
    step: StepOption = None,
    or_newer: Annotated[
        str | None,
        typer.Option(
            "--or-newer",
            metavar="URL",
            help="URL of a manifest to fetch if it is newer than all checkpoints in the store.",
        ),
    ] = None,
    transfer: TransferOptions = DEFAULT_TRANSFER,
    output: TableOutput = "table",
) -> None:
    """Fetch the newest good checkpoint into a folder, verifying every byte against its digest.

    A checkpoint that is incomplete or was changed is skipped in favour of the one before. An empty store is reported
    and is no failure.

    \b
    stepfare checkpoint pull s3://bucket/run-7 /mnt/scratch/run-7
    stepfare checkpoint pull "$STEPFARE_RESUME_MANIFEST" /mnt/scratch/run-7
    """
    from router.checkpoints.checkpoints import list_steps

    downloads, (source, named_step) = transfer.downloads(), resolve_checkpoint_store(url)
    wanted_step = named_step if step is None else step
    other, newer = resolve_checkpoint_store(or_newer) if or_newer is not None else (source, None)
    if or_newer is not None and (newer is None or wanted_step is not None):
        raise option_error("--or-newer", "is a manifest's URL, for where no step is named")
    fetch = partial(downloads, target=FolderStore(folder))
    with translate_storage_errors():
        transfers = fetch(source, step=wanted_step)
        if newer is not None:
            transfers = chain(fetch(source, least=newer), fetch(other, step=newer), transfers)
        moved = _print_transfers(transfers, output, every=False)
        if not moved and (wanted_step is not None or list_steps(source)):
            raise CommandError(f"{url}: no good checkpoint{'' if wanted_step is None else f' of step {wanted_step}'}")
        if not moved:
            console.note(f"{url}: no checkpoint there yet")
            if output == "json":
                console.out(_json([]))


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help=URL_HELP)],
    target: Annotated[str, typer.Argument(metavar="TO", help="URL of the target, of the same kinds.")],
    step: StepOption = None,
    transfer: TransferOptions = DEFAULT_TRANSFER,
    output: TableOutput = "table",
) -> None:
    """Copy the newest good checkpoint to another region or cloud, through this machine.

    The reported bytes are those that left the source, for which egress is charged.

    \b
    stepfare checkpoint copy s3://east/run-7 s3://west/run-7 --seconds 600

    The exit code is 5 if the time ran out; running it again resumes the copy.
    """
    fetch, (origin, named_step) = transfer.downloads(), resolve_checkpoint_store(source)
    destination, _ = resolve_checkpoint_store(target)
    wanted_step = named_step if step is None else step
    with translate_storage_errors():
        moved = _print_transfers(fetch(origin, destination, step=wanted_step), output, every=False)
        if not moved:
            raise CommandError(f"{source}: no good checkpoint")


def _print_transfers(transfers: Iterator[TransferResult], output: TableFormat, *, every: bool) -> list[TransferResult]:
    moved: list[TransferResult] = []
    for one in transfers:
        moved.append(one)
        if output == "table":
            console.out(describe_transfer(one))
        if not every:
            break
    if moved and output == "json":
        console.out(_json(moved))
    return moved


def _json(moved: list[TransferResult]) -> str:
    rows = [{**dataclasses.asdict(one), "seconds": round(one.seconds, 3)} for one in moved]
    return json_document({"checkpoints": rows})


Row = tuple[int, "CheckpointManifest | None", str]


def list_checkpoints(
    url: UrlArgument,
    output: TableOutput = "table",
) -> None:
    """List the checkpoints of a store, the newest first, and whether all files exist with the right size.

    \b
    stepfare checkpoint list s3://bucket/run-7
    """
    from router.checkpoints.checkpoints import find_complete_checkpoints, list_steps, read_manifest

    store, _ = resolve_checkpoint_store(url)
    with translate_storage_errors():
        faults: dict[int, str] = {}
        complete = {manifest.step for manifest in find_complete_checkpoints(store, faults.__setitem__)}
        rows = [
            (step, read_manifest(store, step), "" if step in complete else faults.get(step, "gone"))
            for step in list_steps(store)
        ]
    _show(rows, output, "whole")


def verify(
    url: UrlArgument,
    step: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Step of the checkpoint; default: every step.")
    ] = None,
    transfer: TransferOptions = DEFAULT_TRANSFER,
    output: TableOutput = "table",
) -> ExitCode:
    """Read every byte of the checkpoints of a store and verify it against the manifest.

    \b
    stepfare checkpoint verify s3://bucket/run-7
    stepfare checkpoint verify s3://bucket/run-7 --step 1200

    Exit codes: 1 a checkpoint was changed or is incomplete; 5 the time ran out before all were read.
    """
    from router.checkpoints.checkpoints import list_steps, read_manifest
    from router.checkpoints.transfer import verify_checkpoint as read

    pace = build_rate_limit(transfer.seconds, transfer.max_mbps)
    store, named_step = resolve_checkpoint_store(url)
    wanted_step = named_step if step is None else step
    rows: list[Row] = []
    with translate_storage_errors():
        for number in list_steps(store) if wanted_step is None else [wanted_step]:
            manifest, fault = read_manifest(store, number), ""
            try:
                if manifest is None:
                    raise IncompleteCheckpointError("its manifest cannot be read")
                read(store, manifest, pace, parallel=transfer.parallel)
            except IncompleteCheckpointError as error:
                fault = str(error)
            rows.append((number, manifest, fault))
    if not rows:
        raise CommandError(f"{url}: no checkpoint there")
    _show(rows, output, "as it was written")
    return ExitCode.FAILURE if any(fault for _, _, fault in rows) else ExitCode.OK


def _show(rows: list[Row], output: TableFormat, intact: str) -> None:
    console.print_table(output, "checkpoints", _checkpoint_table(intact), rows, "none")


def _checkpoint_table(intact: str) -> RecordTable[Row]:
    def stated(take: Callable[[CheckpointManifest], object]) -> Callable[[Row], object]:
        return lambda row: None if row[1] is None else take(row[1])

    return RecordTable(
        (
            TableColumn("step", lambda row: row[0], "STEP", right=True),
            TableColumn("attempt", stated(lambda manifest: manifest.attempt), "ATTEMPT", width=24),
            TableColumn("created", stated(lambda manifest: manifest.created), "CREATED"),
            TableColumn("files", stated(lambda manifest: len(manifest.files)), "FILES", right=True),
            TableColumn("bytes", stated(lambda manifest: manifest.bytes), "SIZE", format_bytes, right=True),
            TableColumn("good", lambda row: not row[2]),
            TableColumn("why", lambda row: row[2] or None),
            TableColumn("", lambda row: row[2] or intact, ""),
        )
    )


CONTROL, RANK = "STEPFARE_CONTROL", "NODE_RANK"
STORE, RESUME = "STEPFARE_CHECKPOINT_STORE", "STEPFARE_RESUME_MANIFEST"
_KEEP, _GRACE = 3, 600.0
_NOT_FOUND = 127
_URL_HELP = f"Store, as for push; default: {STORE}, which the agent sets."
DefaultUrl = Annotated[str | None, typer.Argument(metavar="URL", help=_URL_HELP, show_default=False)]
_HERE = "from router.cli.main import main; main()"

Keep = Annotated[int, typer.Option(min=1, metavar="N", help="Checkpoints to keep in the store.")]
Grace = Annotated[float, typer.Option(min=0, metavar="S", help="Seconds for the last copies at the end.")]


def watch(
    folder: TrainingFolder,
    url: DefaultUrl = None,
    keep: Keep = _KEEP,
    max_mbps: SpeedLimitOption = None,
    parallel: ParallelOption = _PARALLEL,
    grace: Grace = _GRACE,
    until_eof: Annotated[
        bool, typer.Option("--until-eof", help="Run until stdin ends; ignore signals, which are for the training.")
    ] = False,
) -> None:
    """Copy each checkpoint to durable storage as it is written, until stopped; then copy the remaining ones.

    Under a stepfare agent it answers save requests for the training, which needs STEPFARE_CHECKPOINT_URL: a checkpoint
    counts once it is in the store. While an answer is due, the bandwidth is not limited. On a machine whose NODE_RANK
    is not 0 it copies nothing and answers once the first machine has copied.

    \b
    stepfare checkpoint watch /mnt/scratch/run-7 s3://bucket/run-7

    The exit code is 5 if the newest checkpoint could not be copied within --grace.
    """
    from router.checkpoints.uploader import Uploader, UploaderControlFolder, UploadSettings

    most = build_rate_limit(None, max_mbps).rate
    environment = os.environ  # noqa: TID251
    target, _ = resolve_checkpoint_store(_store(url, environment))
    control = environment.get(CONTROL)
    uploader = Uploader(
        target,
        folder=folder,
        answers=UploaderControlFolder(Path(control)) if control else None,
        how=UploadSettings(environment.get(RANK, "0") == "0", keep, parallel, most),
        tell=console.note,
    )
    if uploader.run(_watch_stdin() if until_eof else _watch_signals(), grace):
        return
    console.note("the newest checkpoint is not on durable storage", "error")
    sys.stderr.flush()
    # A thread may hang in a call to the store, and a normal exit would wait for it.
    os._exit(ExitCode.PARTIAL)


def run(
    context: typer.Context,
    folder: TrainingFolder,
    url: DefaultUrl = None,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND", help="Command of the training.", show_default=False)
    ] = None,
    keep: Keep = _KEEP,
    max_mbps: SpeedLimitOption = None,
    parallel: ParallelOption = _PARALLEL,
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
        raise option_error("COMMAND", "there is no training to run", "write it after --")
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
        raise option_error(
            "URL",
            f"none is given, and {STORE} is not set",
            "write one, or name the region's checkpoint_url in the deploy file",
        )
    return chosen


def _is_elsewhere(manifest: str, url: str) -> bool:
    """Return whether a URL names a manifest that is not in this store."""
    folder, _, name = manifest.rpartition("/")
    here = url.partition("?")[0].removeprefix("file://").rstrip("/")
    return parse_step(name) is not None and folder.removeprefix("file://") != here


def _check_store_url(url: str) -> None:
    """Raise InvalidInputError if a URL cannot be a checkpoint store; the store itself is not contacted."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme not in (*SCHEMES, "file", "") or parts.password is not None:
        raise option_error("URL", f"{parts.scheme}:// is no place for checkpoints", URL_HELP)


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
