"""How fast checkpoints become durable, beside pyarrow's own copy of the same files, and how much memory that takes.

    python -m tests.bench.upload [--megabytes 256] [--rounds 3]

Run from the repository's root. Each copy is a process of its own, measured inside it: ours reads every byte against its
digest, syncs what it writes to a folder, and writes the manifest last; pyarrow's does nothing of that. The S3 is moto
over loopback, whose own work is most of the time there.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from router.checkpoints.arrow_store import open_arrow_store
from router.checkpoints.checkpoints import read_manifest
from router.checkpoints.object_store import FolderStore, open_checkpoint_store
from router.checkpoints.transfer import TransferLimits, transfer_checkpoint
from tests.support.object_store import object_store
from tests.support.stored_checkpoints import save

MEGABYTE, STEP = 1_000_000, 1


def main(megabytes: int = 256, rounds: int = 3) -> None:
    print(f"\nCHECKPOINTS TO DURABLE STORAGE ({megabytes} MB, median of {rounds}; beside pyarrow.fs.copy_files)")
    with TemporaryDirectory(prefix="stepfare-bench-") as name, object_store() as store:
        for what, files in (("8 files", 8), ("1 file", 1)):
            source = Path(name) / what.replace(" ", "-")
            save(source, STEP, {f"part-{n}": megabytes * MEGABYTE // files for n in range(files)})
            for goal in ("folder", "s3"):
                took: dict[str, list[float]] = {"ours": [], "plain": []}
                memory: dict[str, float] = {}
                for number in range(rounds):
                    for how, seconds in took.items():
                        at = f"{files}/{how}/{number}"
                        url = f"s3://bucket-east/{at}" if goal == "s3" else str(Path(name) / "to" / at)
                        one = _child(how, source, url, store.environment)
                        seconds.append(one["seconds"])
                        memory[how] = max(memory.get(how, 0.0), one["mebibytes"])
                        if goal == "s3":
                            _empty(store.client)
                ours, plain = (statistics.median(took[how]) for how in ("ours", "plain"))
                print(
                    f"  {what:8} to {goal:7} {megabytes / ours:7.0f} MB/s, plain {megabytes / plain:7.0f} MB/s, "
                    f"{ours / plain:5.2f} times as long; {memory['ours']:.0f} MiB, plain {memory['plain']:.0f} MiB",
                    flush=True,
                )


def _empty(client: object) -> None:
    bucket = getattr(client, "list_objects_v2")(Bucket="bucket-east")  # noqa: B009
    for row in bucket.get("Contents", []):
        getattr(client, "delete_object")(Bucket="bucket-east", Key=row["Key"])  # noqa: B009


def _child(how: str, source: Path, url: str, environment: dict[str, str]) -> dict[str, float]:
    words = [sys.executable, "-m", "tests.bench.upload", "--child", how, str(source), url]
    said = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True, check=True).stdout
    found: dict[str, float] = json.loads(said)
    return found


def _copy(how: str, source: str, url: str) -> None:
    """In a process of its own."""
    environment = dict(os.environ)
    folder = FolderStore(Path(source))
    manifest = read_manifest(folder, STEP)
    assert manifest is not None
    if how == "ours":
        target = open_checkpoint_store(url, lambda text: open_arrow_store(text, environment))
        began = time.perf_counter()
        transfer_checkpoint(folder, manifest, target, TransferLimits())
    else:
        from pyarrow import fs

        if url.startswith("s3://"):
            system = fs.S3FileSystem(region="us-east-1", endpoint_override=environment["AWS_ENDPOINT_URL"])
            goal = url.removeprefix("s3://")
        else:
            system, goal = fs.LocalFileSystem(), url
            Path(url).mkdir(parents=True)
        began = time.perf_counter()
        fs.copy_files(
            f"{source}/step-{STEP:08d}", goal, source_filesystem=fs.LocalFileSystem(), destination_filesystem=system
        )
    took = time.perf_counter() - began
    # What getrusage says is also that of whoever forked us.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"seconds": took, "mebibytes": int(peak.split()[1]) / 1024}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How fast checkpoints become durable.")
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=3)
    asked = parser.parse_args()
    if asked.child:
        _copy(*asked.child)
    else:
        main(asked.megabytes, asked.rounds)
