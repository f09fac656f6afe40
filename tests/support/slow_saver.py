"""A training whose checkpoints take long, or grow: `python slow_saver.py FOLDER STEPS EVERY SAVE_S BYTES_A_STEP MOST`.

In its first life no file of it may be larger than so many bytes (0: as large as it likes).
One process, under a stepfare agent. Each step turns a digest into the next one. A line of metrics.jsonl for each, as
the trainer of the demo writes them, with the digest in place of a loss.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path

STEP_S = 0.05


def digest_after(steps: int) -> str:
    digest = b""
    for _ in range(steps):
        digest = hashlib.sha256(digest).digest()
    return digest.hex()


def main() -> None:
    import stepfare_checkpoint  # type: ignore[import-not-found]  # the agent puts it there

    folder, steps, every, save_s, size, most = Path(sys.argv[1]), *map(float, sys.argv[2:7])
    folder.mkdir(parents=True, exist_ok=True)
    checkpoints = stepfare_checkpoint.Checkpoints(folder)
    checkpoints.catch_sigterm()
    good = checkpoints.newest()
    step, digest = 0, b""
    if good is not None:
        step, digest = good.step, bytes.fromhex((good.of(0) / "state").read_text().split()[0])

    elif most:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), resource.RLIM_INFINITY))

    def write(place: Path) -> None:
        with (place / "state").open("w") as stream:
            stream.write(f"{digest.hex()}\n{'.' * int(step * size)}")
            stream.flush()
            time.sleep(save_s)

    with (folder / "metrics.jsonl").open("a") as metrics:
        while step < steps:
            time.sleep(STEP_S)
            step, digest = step + 1, hashlib.sha256(digest).digest()
            line = {"step": step, "loss": digest.hex(), "time": time.time(), "attempt": os.environ["STEPFARE_ATTEMPT"]}
            metrics.write(json.dumps(line) + "\n")
            metrics.flush()
            checkpoints.progress(step, int(steps))
            request = checkpoints.wanted(step)
            if request or step % every == 0 or step == steps:
                with suppress(OSError):
                    checkpoints.save(step, write)
            if request and request.ends:
                sys.exit(143)


if __name__ == "__main__":
    main()
