"""Measure the all-reduce of a gang with the torch of the job's image. stepfare's agent runs it before the training.

``python3 -m stepfare_all_reduce [gpus]`` on every machine starts a process for each accelerator. The result lies in
``all-reduce.json`` of the control folder: ``gb_per_s`` is the bus bandwidth as nccl-tests define it, the bytes of an
all-reduce times 2(n-1)/n over its seconds; or ``skipped`` says why nothing could be measured.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SIZES = {"nccl": (2**26, 2**28, 2**30), "gloo": (2**22, 2**24)}
ROUNDS = 5
CONNECT_SECONDS, MOST_SECONDS = 120, 15


def measure(rank: int, world: int, local: int, *, gpus: bool) -> dict[str, Any]:
    """Return what all ranks measured together: the best of several sizes, each timed by its slowest rank."""
    try:
        import torch
        import torch.distributed as group
    except Exception as error:
        return {"skipped": f"torch in the job's image cannot be imported: {error}"}
    if gpus and not torch.cuda.is_available():
        return {"skipped": "torch in the job's image sees no GPUs"}
    backend = "nccl" if gpus else "gloo"
    device = torch.device("cuda", local) if gpus else torch.device("cpu")
    wait = torch.cuda.synchronize if gpus else lambda: None
    if gpus:
        torch.cuda.set_device(device)
    limit = datetime.timedelta(seconds=CONNECT_SECONDS)
    group.init_process_group(backend, init_method="env://", rank=rank, world_size=world, timeout=limit)
    best: dict[str, Any] = {"gb_per_s": 0.0, "bytes": 0, "backend": backend}
    spent = 0.0
    for size in SIZES[backend]:
        values = torch.zeros(size // 4, device=device)
        group.all_reduce(values)  # The first one opens connections.
        wait()
        group.barrier()
        began = time.perf_counter()
        for _ in range(ROUNDS):
            group.all_reduce(values)
        wait()
        slowest = torch.tensor([time.perf_counter() - began], dtype=torch.float64, device=device)
        group.all_reduce(slowest, op=group.ReduceOp.MAX)
        seconds = float(slowest.item())
        speed = ROUNDS * size * 2 * (world - 1) / world / seconds / 1e9
        if speed > best["gb_per_s"]:
            best = {**best, "gb_per_s": speed, "bytes": size}
        spent += seconds
        if spent * 4 > MOST_SECONDS:  # The next size takes about four times as long. All ranks know the same time.
            break
    group.destroy_process_group()
    return best


def main(arguments: list[str], environment: dict[str, str]) -> int:
    """Start a process for each accelerator of this machine, or be one of them."""
    world = int(environment["WORLD_SIZE"])
    each = world // int(environment["NNODES"])
    folder = Path(environment["STEPFARE_CONTROL"])
    kind = arguments[0] if arguments else "cpu"
    if arguments[1:]:
        local = int(arguments[1])
        result = measure(int(environment["NODE_RANK"]) * each + local, world, local, gpus=kind == "gpus")
        return write_result(folder, result) if local == 0 else 0
    if importlib.util.find_spec("torch") is None:
        return write_result(folder, {"skipped": "the job's image has no torch"})
    # The job's own port stays free.
    environment = {**environment, "MASTER_PORT": str(int(environment["MASTER_PORT"]) + 1)}
    command = [sys.executable, "-m", "stepfare_all_reduce", kind]
    running = [subprocess.Popen([*command, str(local)], env=environment) for local in range(each)]
    code = 0
    while running and code == 0:
        time.sleep(0.02)
        code = next((one.returncode for one in running if one.poll()), 0)
        running = [one for one in running if one.returncode is None]
    for one in running:
        one.kill()
    return code


def write_result(folder: Path, result: dict[str, Any]) -> int:
    """Write the result where the agent reads it, and return the exit code."""
    part = folder / "all-reduce.json.part"
    part.write_text(json.dumps(result), encoding="utf-8")
    part.replace(folder / "all-reduce.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], dict(os.environ)))  # noqa: TID251  (the edge)
