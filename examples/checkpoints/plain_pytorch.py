"""A plain PyTorch loop under DDP that loses no step: `torchrun plain_pytorch.py /mnt/bucket/run-7`.

The loop asks once a step whether a checkpoint is needed, saves it on all ranks after the same step, and goes on from
the newest good one. Without stepfare it works the same, but nobody asks.
"""

from __future__ import annotations

import sys
from pathlib import Path

import stepfare_checkpoint
import torch
import torch.distributed as dist

STEPS, EVERY, BATCH = 10_000, 500, 64


def agree(flag: bool) -> bool:
    """Whether any rank says so. A reduction of one number; NCCL waits for the device: see ``agree_every``."""
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    number = torch.tensor([int(flag)], device=device)
    dist.all_reduce(number, op=dist.ReduceOp.MAX)
    return bool(number.item())


def newest(checkpoints):
    """The same on all ranks: rank 0 reads every byte, the others hear which one it found."""
    found = checkpoints.newest() if dist.get_rank() == 0 else None
    told = [found.step if found else None]
    dist.broadcast_object_list(told, src=0)
    return None if told[0] is None else checkpoints.at(told[0], whole=False)


def train(model, optimizer, batch_of, checkpoints, steps=STEPS, every=EVERY):
    """``batch_of(step)`` gives the same batch for the same step on each rank: so the step is the data position."""
    first, good = 1, newest(checkpoints)
    if good is not None:
        state = torch.load(good.of(0) / "state.pt", map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(torch.load(good.of(dist.get_rank()) / "rng.pt", weights_only=True))
        first = good.data_position + 1
    checkpoints.catch_sigterm()
    for step in range(first, steps + 1):
        optimizer.zero_grad()
        model(batch_of(step)).square().mean().backward()
        optimizer.step()

        request = checkpoints.wanted(step)
        if request or step % every == 0 or step == steps:

            def write(folder: Path) -> None:
                torch.save(torch.get_rng_state(), folder / "rng.pt")
                if dist.get_rank() == 0:  # under DDP all ranks have the same weights
                    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "state.pt")

            checkpoints.save(step, write, data_position=step)
        checkpoints.progress(step, steps)
        if request and request.ends:
            return step
    return steps


def main(folder: str) -> None:
    """A model of one layer, on noise."""
    dist.init_process_group("gloo")
    checkpoints = stepfare_checkpoint.Checkpoints(
        folder, rank=dist.get_rank(), world=dist.get_world_size(), agree=agree, agree_every=1
    )
    layer = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(layer.parameters())

    def batch_of(step):
        noise = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
        return torch.randn(BATCH, 32, generator=noise)

    train(layer, optimizer, batch_of, checkpoints)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
