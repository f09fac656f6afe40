"""Hugging Face Trainer: a callback that has it save when somebody needs a checkpoint, and makes what it saves count.

    arguments = TrainingArguments(output_dir="/mnt/bucket/run-7", save_strategy="steps", save_steps=500)
    interruptions = Interruptions(arguments.output_dir)
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[interruptions])
    trainer.train(resume_from_checkpoint=interruptions.newest())

The Trainer writes its folder ``checkpoint-STEP``; the manifest beside it is what makes it count. It removes the older
ones itself, so leave ``save_total_limit`` unset.
"""

from __future__ import annotations

from pathlib import Path

import stepfare_checkpoint
import torch
import torch.distributed as dist
from transformers import TrainerCallback


class Interruptions(TrainerCallback):
    """``folder`` is the Trainer's ``output_dir``, shared by all ranks."""

    def __init__(self, folder, keep=3, agree_every=1):
        self.folder, self._options = Path(folder), {"keep": keep, "agree_every": agree_every}
        self._checkpoints = None
        self._ends = False

    def newest(self):
        """What to give to ``train`` as ``resume_from_checkpoint``; None: from the beginning. Every byte is read."""
        good = stepfare_checkpoint.Checkpoints(self.folder, rank=-1).newest()
        return None if good is None else str(self.folder / f"checkpoint-{good.step}")

    def on_train_begin(self, args, state, control, **kwargs):
        """Ranks are known from here on."""
        self._checkpoints = stepfare_checkpoint.Checkpoints(
            self.folder, rank=args.process_index, world=args.world_size, agree=_agree, **self._options
        )
        self._checkpoints.catch_sigterm()

    def on_step_end(self, args, state, control, **kwargs):
        """After every step of the optimizer."""
        request = self._checkpoints.wanted(state.global_step)
        if request:
            control.should_save = True
            self._ends = request.ends
        self._checkpoints.progress(state.global_step, state.max_steps)

    def on_save(self, args, state, control, **kwargs):
        """After every checkpoint of the Trainer."""
        if dist.is_initialized():
            dist.barrier()  # what each rank wrote is there
        files = None
        if args.process_index == 0:
            files = [file for file in (self.folder / f"checkpoint-{state.global_step}").rglob("*") if file.is_file()]
        self._checkpoints.save(state.global_step, files, data_position={"epoch": state.epoch})
        if self._ends:
            control.should_training_stop = True


def _agree(flag):
    if not dist.is_initialized():
        return flag
    number = torch.tensor([int(flag)], device="cuda" if dist.get_backend() == "nccl" else "cpu")
    dist.all_reduce(number, op=dist.ReduceOp.MAX)
    return bool(number.item())
