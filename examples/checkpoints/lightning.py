"""PyTorch Lightning: a callback that saves when somebody needs a checkpoint, and every so many steps.

    checkpoints = Interruptions("/mnt/bucket/run-7", every=500)
    trainer = Trainer(callbacks=[checkpoints], enable_checkpointing=False, ...)
    trainer.fit(model, data, ckpt_path=checkpoints.newest())

Lightning writes the checkpoint; the manifest beside it is what makes it count. It removes the older ones itself, so
leave Lightning's own ModelCheckpoint out (or give it another folder).
"""

from __future__ import annotations

from pathlib import Path

import stepfare_checkpoint
from lightning.pytorch.callbacks import Callback


class Interruptions(Callback):
    """``folder`` is shared by all ranks."""

    def __init__(self, folder, every=500, keep=3, agree_every=1):
        self.folder, self.every = Path(folder), every
        self._options = {"keep": keep, "agree_every": agree_every}
        self._checkpoints, self._written = None, None

    def newest(self):
        """What to give to ``fit`` as ``ckpt_path``; None: from the beginning. Every byte is read."""
        good = stepfare_checkpoint.Checkpoints(self.folder, rank=-1).newest()
        return None if good is None else str(self.folder / _name(good.step))

    def on_fit_start(self, trainer, pl_module):
        """Ranks are known from here on."""
        self._checkpoints = stepfare_checkpoint.Checkpoints(
            self.folder,
            rank=trainer.global_rank,
            world=trainer.world_size,
            agree=lambda flag: trainer.strategy.reduce_boolean_decision(flag, all=False),
            **self._options,
        )

    def on_train_start(self, trainer, pl_module):
        """Lightning has set its own handlers before."""
        self._checkpoints.catch_sigterm()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        """After every batch; a step is one of the optimizer."""
        step = trainer.global_step
        request = self._checkpoints.wanted(step)
        if request or (step and step % self.every == 0):
            self._save(trainer, step)
        self._checkpoints.progress(step, trainer.max_steps if trainer.max_steps > 0 else None)
        if request and request.ends:
            trainer.should_stop = True

    def on_fit_end(self, trainer, pl_module):
        """The last one."""
        self._save(trainer, trainer.global_step)

    def _save(self, trainer, step):
        written = self.folder / _name(step)
        if step != self._written:  # what counts already is not written again
            trainer.save_checkpoint(written)  # on all ranks, which wait for each other
            self._written = step
        files = [file for file in [written, *written.rglob("*")] if file.is_file()] if trainer.is_global_zero else None
        self._checkpoints.save(step, files, data_position={"batches": trainer.fit_loop.total_batch_idx + 1})


def _name(step):
    return f"lightning-{step:08d}.ckpt"
