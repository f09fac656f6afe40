"""A training whose steps come ever later, once: `python late_steps.py FOLDER STEPS EVERY`.

One process, under a stepfare agent. Its first life slows down after a few steps, until it hardly goes on; a later one
is as fast as it was meant to be. A line of metrics.jsonl for each step, as the trainer of the demo writes them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

STEP_S = 0.1
# After so many steps each takes so many times as long as the one before it.
FAST_STEPS, GROWTH = 20, 10.0


def main() -> None:
    import stepfare_checkpoint  # type: ignore[import-not-found]  # the agent puts it there

    folder, steps, every = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    stepfare_checkpoint.offer_stacks()
    checkpoints = stepfare_checkpoint.Checkpoints(folder)
    checkpoints.catch_sigterm()
    good = checkpoints.newest()
    step, pause = (0 if good is None else good.step), STEP_S
    with (folder / "metrics.jsonl").open("a") as metrics:
        while step < steps:
            if good is None and step >= FAST_STEPS:
                pause *= GROWTH
            until = time.monotonic() + pause
            while time.monotonic() < until:
                time.sleep(0.05)
            step += 1
            line = {"step": step, "loss": "", "time": time.time(), "attempt": os.environ["STEPFARE_ATTEMPT"]}
            metrics.write(json.dumps(line) + "\n")
            metrics.flush()
            checkpoints.progress(step, steps)
            request = checkpoints.wanted(step)
            if request or step % every == 0:
                checkpoints.save(step, lambda place: (place / "state").write_text("x"))
            if request and request.ends:
                break


if __name__ == "__main__":
    main()
