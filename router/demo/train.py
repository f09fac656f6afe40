"""A small real training: a character model, trained by SGD on generated text, over all ranks of a gang.

The file needs only the standard library and numpy: ``python -m router.demo.train --steps 600 --checkpoint-dir DIR``, or
the file itself. Ranks meet by the torchrun contract (MASTER_ADDR, MASTER_PORT, RANK or NODE_RANK, WORLD_SIZE or
NNODES); without it there is one. Only rank 0 uses the checkpoint folder; if the node agent's helper can be imported
(stepfare_checkpoint), all ranks confirm what is saved, and save on request.

The same seed gives the same losses to the last bit on machines of one kind, whatever the number of ranks and however
often the training was stopped or killed and resumed: a batch is cut into the same shards, added in the same order. Exit
codes: 0 done, 1 a rank was lost or a file failed, 2 wrong options, 130 and 143 stopped by SIGINT and SIGTERM, and
saved.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import io
import json
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# Sums must not depend on the number of cores of a machine, nor on kernels that the process which starts it chose for
# itself: they are compared to the last bit. numpy reads these variables when it is imported.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # noqa: TID251  (a program of its own: its edge)
for _name in ("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES"):
    os.environ.pop(_name, None)  # noqa: TID251

import numpy as np  # noqa: E402

Array = np.ndarray[Any, np.dtype[Any]]

LETTERS, CONTEXT, EMBEDDED, HIDDEN = 32, 3, 16, 64
TEXT, BATCH, SHARDS = 2**15, 256, 8
RATE, MOMENTUM, KEPT, FORMAT = 0.03, 0.9, 3, "stepfare-demo-1"
# Share of the training that is done before a training that awaits more attempts waits for them.
_FREE_SHARE = 0.9
_LONGEST_LINE, _LONGEST_BODY, _GREETING = 2**16, 2**28, 5.0


class TrainingError(Exception):
    code = 1


class TrainingOptionsError(TrainingError):
    """The training cannot run with these options, or in this environment."""

    code = 2


class StopSignal:
    """Catches SIGTERM and SIGINT: from its creation they are only recorded, in ``signal``; 0 while none came."""

    def __init__(self) -> None:
        self.signal = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda caught, _: setattr(self, "signal", caught))

    def nap(self, seconds: float) -> None:
        """Sleep, but end at a signal."""
        end = time.monotonic() + seconds
        while not self.signal and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))


def print_line(line: str) -> None:
    os.write(1, f"{line}\n".encode())


# The model: embedded letters, one hidden layer, a softmax. The weights are one vector.
SHAPES = ((LETTERS, EMBEDDED), (CONTEXT * EMBEDDED, HIDDEN), (HIDDEN,), (HIDDEN, LETTERS), (LETTERS,))
SIZE = sum(math.prod(shape) for shape in SHAPES)


def split_weights(vector: Array) -> list[Array]:
    """Return the vector as matrices, which are views of it."""
    ends = np.cumsum([math.prod(shape) for shape in SHAPES])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(vector, ends), SHAPES, strict=True)]


def loss_and_gradient(weights: Array, before: Array, after: Array) -> tuple[float, Array]:
    """Return the sum of the cross-entropies of some examples, in nats, and its gradient."""
    embed, inner, inner_bias, outer, outer_bias = split_weights(weights)
    inputs = embed[before].reshape(len(before), -1)
    hidden = np.tanh(inputs @ inner + inner_bias)
    scores = hidden @ outer + outer_bias
    probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    rows, gradient = np.arange(len(after)), np.zeros(SIZE)
    total = float(-np.log(probabilities[rows, after]).sum())
    probabilities[rows, after] -= 1.0
    hidden_gradient = (probabilities @ outer.T) * (1.0 - hidden * hidden)
    d_embed, d_inner, d_inner_bias, d_outer, d_outer_bias = split_weights(gradient)
    d_outer[:], d_outer_bias[:] = hidden.T @ probabilities, probabilities.sum(axis=0)
    d_inner[:], d_inner_bias[:] = inputs.T @ hidden_gradient, hidden_gradient.sum(axis=0)
    np.add.at(d_embed, before, (hidden_gradient @ inner.T).reshape(len(before), CONTEXT, EMBEDDED))
    return total, gradient


@dataclass(frozen=True)
class Progress:
    """The state of the training, on which the next step depends.

    ``rng``: the generator as it was before it shuffled the examples of this epoch, of which ``position`` are used up.
    """

    seed: int
    step: int
    position: int
    rng: dict[str, Any]
    weights: Array
    speed: Array

    @classmethod
    def fresh(cls, seed: int) -> Progress:
        """Return the state before the first step."""
        weights, draw = np.zeros(SIZE), np.random.default_rng([seed, 2])
        for part in split_weights(weights):
            if part.ndim > 1:
                part[:] = draw.standard_normal(part.shape) / math.sqrt(part.shape[0])
        return cls(seed, 0, 0, dict(draw.bit_generator.state), weights, np.zeros(SIZE))

    def packed(self) -> bytes:
        """Return the content of a checkpoint: a line with the digest of the rest, then the rest."""
        state = {name: getattr(self, name) for name in ("seed", "step", "position", "rng")}
        np.savez(buffer := io.BytesIO(), weights=self.weights, speed=self.speed, state=np.array(json.dumps(state)))
        digest = hashlib.sha256(body := buffer.getvalue()).hexdigest()
        return json.dumps({"format": FORMAT, "step": self.step, "sha256": digest}).encode() + b"\n" + body

    @classmethod
    def unpacked(cls, data: bytes) -> Progress:
        """Return the state in a checkpoint. ValueError for anything that differs from what was packed."""
        line, _, body = data.partition(b"\n")
        manifest = dict(json.loads(line))
        if (manifest.get("format"), manifest.get("sha256")) != (FORMAT, hashlib.sha256(body).hexdigest()):
            raise ValueError("its SHA-256 is not the one that it names")
        with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
            return cls(**json.loads(str(arrays["state"])), weights=arrays["weights"], speed=arrays["speed"])

    def after(self, gradient: Array) -> Progress:
        speed = MOMENTUM * self.speed - RATE * gradient
        return replace(self, step=self.step + 1, weights=self.weights + speed, speed=speed)


class Examples:
    """A text in which a few letters usually follow each letter, cut into examples in a new order each epoch."""

    def __init__(self, progress: Progress) -> None:
        rng = np.random.default_rng([progress.seed, 1])
        follows = np.cumsum(rng.dirichlet(np.full(LETTERS, 0.1), size=LETTERS), axis=1)
        self._letters = np.zeros(TEXT, np.int64)
        for index, draw in enumerate(rng.random(TEXT - 1)):
            self._letters[index + 1] = min(int(np.searchsorted(follows[self._letters[index]], draw)), LETTERS - 1)
        self._rng = np.random.default_rng()
        self._rng.bit_generator.state = progress.rng
        self._order = self._rng.permutation(TEXT - CONTEXT)

    def batch(self, progress: Progress) -> tuple[Progress, list[tuple[Array, Array]]]:
        """Return the state that has used the next batch, and its shards, each as (letters before, letter after)."""
        if progress.position + BATCH > len(self._order):
            progress = replace(progress, position=0, rng=dict(self._rng.bit_generator.state))
            self._order = self._rng.permutation(TEXT - CONTEXT)
        chosen = self._order[progress.position : progress.position + BATCH]
        before = np.split(self._letters[chosen[:, None] + np.arange(CONTEXT)], SHARDS)
        after = np.split(self._letters[chosen + CONTEXT], SHARDS)
        return replace(progress, position=progress.position + BATCH), list(zip(before, after, strict=True))


class DemoCheckpoints:
    """Rank 0's files ``step-NNNNNNNN.ckpt`` in a folder, the last three, and ``metrics.jsonl``.

    Without a folder: nothing.
    """

    def __init__(self, folder: Path | None, rank: int = 0, ranks: int = 1, limit: float = 0.0) -> None:
        self._folder, self._metrics, self._helper = None if rank else folder, -1, None
        with suppress(ImportError):
            helper: Any = importlib.import_module("stepfare_checkpoint")
            self._helper = folder and helper.Checkpoints(folder, KEPT, rank=rank, world=ranks, patience=limit)
        if folder is None or rank:
            return
        folder.mkdir(parents=True, exist_ok=True)
        for part in folder.glob(".step-*.part"):
            part.unlink()
        self._metrics = os.open(folder / "metrics.jsonl", os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        if (size := os.fstat(self._metrics).st_size) and os.pread(self._metrics, 1, size - 1) != b"\n":
            os.write(self._metrics, b"\n")

    def newest(self, seed: int) -> Progress:
        """Return the newest complete checkpoint, else the beginning. Torn or changed ones are renamed to ``.bad``."""
        for path in sorted(self._folder.glob("step-*.ckpt"), reverse=True) if self._folder else ():
            try:
                progress = Progress.unpacked(path.read_bytes())
            except (OSError, ValueError, TypeError) as error:
                print_line(f"skipped {path.name}: {error}")
                with suppress(OSError):
                    path.rename(path.with_suffix(".bad"))
                continue
            if progress.seed != seed:
                raise TrainingOptionsError(f"{path} is of a training with --seed {progress.seed}, not {seed}")
            print_line(f"resumed at step {progress.step} from {path.name}")
            return progress
        return Progress.fresh(seed)

    def previous_attempts(self, attempt: str | None) -> int:
        """Return how many other attempts have trained a step."""
        if self._metrics < 0:
            return 0
        attempts = set()
        for line in os.pread(self._metrics, os.fstat(self._metrics).st_size, 0).splitlines():
            with suppress(ValueError):  # a line that was torn
                attempts.add(json.loads(line)["attempt"])
        return len(attempts - {attempt})

    def asked(self, step: int, steps: int) -> bool:
        """Report the number of steps done, and return whether a checkpoint is requested."""
        return bool(self._helper and (self._helper.progress(step, steps) or self._helper.wanted(step)))

    def save(self, progress: Progress, *, confirm: bool = True) -> None:
        """Save a checkpoint to disk, completely or not at all. All ranks call it, except with ``confirm`` False."""
        path = self._folder / f"step-{progress.step:08d}.ckpt" if self._folder else None
        if path is not None:
            with (part := path.with_name(f".{path.stem}.part")).open("wb") as stream:
                stream.write(progress.packed())
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(path)
            os.fsync(folder := os.open(path.parent, os.O_RDONLY))
            os.close(folder)
            for old in sorted(other for other in path.parent.glob("step-*.ckpt") if other <= path)[:-KEPT]:
                if not old.with_suffix(".manifest.json").exists():  # The helper removes those.
                    old.unlink(missing_ok=True)
        if self._helper and confirm:
            files = [path] if path else None
            self._helper.save(progress.step, files, data_position=progress.position, rng=progress.rng)

    def note(self, **metrics: object) -> None:
        """Append a line to metrics.jsonl."""
        if self._folder is not None:
            os.write(self._metrics, json.dumps(metrics).encode() + b"\n")


class Link:
    """A connection to another rank. A message is a line of JSON, then as many bytes as it says. OSError if it fails."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        connection.settimeout(seconds)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket, self._stream = connection, connection.makefile("rb")

    def send(self, head: Mapping[str, Any], body: bytes = b"") -> None:
        self.socket.sendall(json.dumps({**head, "bytes": len(body)}).encode() + b"\n" + body)

    def receive(self) -> tuple[dict[str, Any], bytes]:
        try:
            head = json.loads(self._stream.readline(_LONGEST_LINE) or "{}")
            body = self._stream.read(count := min(head.pop("bytes"), _LONGEST_BODY))
        except (ValueError, TypeError, AttributeError, KeyError):
            raise OSError("the connection was closed") from None
        if len(body) != count:
            raise OSError("the connection was closed")
        return head, body


class TrainingGang:
    """All ranks, as a star around rank 0. Any wait longer than the time limit in seconds is an error."""

    def __init__(self, environment: Mapping[str, str], seed: int, limit: float, stop: StopSignal) -> None:
        def read_number(default: str, *names: str) -> int:
            text = next((environment[name] for name in names if environment.get(name)), default)
            if not text.isdecimal():
                raise TrainingOptionsError(f"{names[0]} is {text!r}, not a number")
            return int(text)

        self.rank, self.ranks = read_number("0", "RANK", "NODE_RANK"), read_number("1", "WORLD_SIZE", "NNODES")
        if not self.rank < self.ranks <= SHARDS:
            raise TrainingOptionsError(f"rank {self.rank} of {self.ranks}: from 0, and at most {SHARDS} in all")
        self._where = (environment.get("MASTER_ADDR") or "127.0.0.1", read_number("29500", "MASTER_PORT"))
        self._who = {"attempt": environment.get("STEPFARE_ATTEMPT", ""), "ranks": self.ranks, "seed": seed}
        self._limit, self._stop, self._links = limit, stop, dict[int, Link]()

    def meet(self, progress: Progress | None) -> Progress:
        """Wait for all ranks, and return the state of rank 0, which passes its own."""
        end = time.monotonic() + self._limit
        if progress is None:
            while 0 not in self._links:
                self._wait(end, "rank 0 is not there")
                self._stop.nap(0.05)
                with suppress(OSError):
                    link = Link(socket.create_connection(self._where, self._limit), self._limit)
                    link.send({**self._who, "rank": self.rank})
                    self._links[0] = link
            head, body = self._receive(0, "before the first step")
            if "error" in head:
                raise TrainingOptionsError(f"rank 0 wants other ranks: {head['error']}, not {self._who}")
            return Progress.unpacked(body)
        if self.ranks > 1:
            with socket.create_server(self._where) as server:
                server.settimeout(0.1)
                while len(self._links) < self.ranks - 1:
                    self._wait(end, f"{len(self._links) + 1} of {self.ranks} ranks came")
                    with suppress(OSError):
                        self._welcome(Link(server.accept()[0], _GREETING))
        for link in self._links.values():
            link.send({}, progress.packed())
        return progress

    def _welcome(self, link: Link) -> None:
        who, _ = link.receive()
        rank = who.pop("rank", None)
        if who == self._who and isinstance(rank, int) and 0 < rank < self.ranks:
            self._links[rank] = link
            link.socket.settimeout(self._limit)
        else:
            link.send({"error": str(self._who)})

    def _wait(self, end: float, what: str) -> None:
        if self._stop.signal:
            sys.exit(128 + self._stop.signal)
        if time.monotonic() > end:
            raise TrainingError(f"{what} at {self._where[0]}:{self._where[1]} within {self._limit:g} s")

    def _receive(self, rank: int, when: str) -> tuple[dict[str, Any], bytes]:
        try:
            return self._links[rank].receive()
        except OSError as error:
            raise TrainingError(f"rank {rank} was lost {when}: {error}") from None

    def add_up(
        self, step: int, mine: dict[int, tuple[float, Array]], save_requested: bool
    ) -> tuple[float, Array, int, bool]:
        """Return loss, gradient, any rank's signal, and whether any was asked to save: the same on all ranks."""
        signalled, own = self._stop.signal, range(self.rank, SHARDS, self.ranks)
        if self.rank:
            report = {"losses": [mine[shard][0] for shard in own], "signal": signalled, "asked": save_requested}
            with suppress(OSError):  # An error shows when this rank receives.
                self._links[0].send(report, b"".join(mine[shard][1].tobytes() for shard in own))
            head, body = self._receive(0, f"in step {step}")
            return head["loss"], np.frombuffer(body), head["signal"], head["asked"]
        for rank in sorted(self._links):
            head, body = self._receive(rank, f"in step {step}")
            rows = zip(head["losses"], np.frombuffer(body).reshape(-1, SIZE), strict=True)
            mine |= dict(zip(range(rank, SHARDS, self.ranks), rows, strict=True))
            signalled, save_requested = signalled or head["signal"], save_requested or head["asked"]
        loss, gradient = 0.0, np.zeros(SIZE)
        for shard in range(SHARDS):
            loss, gradient = loss + mine[shard][0] / BATCH, gradient + mine[shard][1] / BATCH
        for link in self._links.values():
            with suppress(OSError):  # The lost rank will be missed in the next step.
                link.send({"loss": loss, "signal": signalled, "asked": save_requested}, gradient.tobytes())
        return loss, gradient, signalled, save_requested


def train(options: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Train and return the exit code. The state is saved even on an error, if the disk takes it.

    TrainingError and OSError when the training cannot continue.
    """
    gang = TrainingGang(environment, options.seed, options.limit_seconds + options.step_seconds, stop := StopSignal())
    store = DemoCheckpoints(options.checkpoint_dir, gang.rank, gang.ranks, options.limit_seconds / 4)
    progress = gang.meet(None if gang.rank else store.newest(options.seed))
    print_line(f"rank {gang.rank} of {gang.ranks} begins after step {progress.step}")
    examples, signalled, reported = Examples(progress), 0, (progress.step, time.perf_counter())
    attempt = environment.get("STEPFARE_ATTEMPT")
    waits = gang.rank == 0 and store.previous_attempts(attempt) + 1 < options.attempts
    while progress.step < options.steps and not signalled:
        began, step = time.perf_counter(), progress.step + 1
        used, shards = examples.batch(progress)
        mine = {n: loss_and_gradient(progress.weights, *shards[n]) for n in range(gang.rank, SHARDS, gang.ranks)}
        asked = store.asked(progress.step, options.steps)
        while waits and step > _FREE_SHARE * options.steps and not (asked or stop.signal):
            stop.nap(0.1)
            asked = store.asked(progress.step, options.steps)
        try:
            loss, gradient, signalled, asked = gang.add_up(step, mine, asked)
        except TrainingError:
            store.save(progress, confirm=False)
            if stop.signal:  # All ranks are being stopped, and this rank is the last to learn of it.
                return 128 + stop.signal
            raise
        progress = used.after(gradient)
        stop.nap(options.step_seconds - (time.perf_counter() - began))
        store.note(step=step, loss=loss, time=round(time.time(), 3), attempt=attempt)  # noqa: TID251
        if gang.rank == 0 and (step % options.report_every == 0 or step == options.steps):
            seconds = (time.perf_counter() - reported[1]) / (step - reported[0])
            print_line(f"step {step}/{options.steps} loss {loss:.4f} step_s {seconds:.3f}")
            reported = (step, time.perf_counter())
        if asked or step % options.checkpoint_every == 0:
            store.save(progress)
    store.save(progress)
    print_line(f"rank {gang.rank} of {gang.ranks} ends after step {progress.step}/{options.steps}")
    return 0 if progress.step >= options.steps else 128 + signalled


def main() -> int:
    parser = argparse.ArgumentParser(description="Train a small character model; see the head of this file.")
    parser.add_argument(
        "--steps", type=int, default=600, help="train this many steps in all, with those of earlier attempts"
    )
    parser.add_argument("--checkpoint-dir", type=Path, help="save and resume in this folder (rank 0)")
    parser.add_argument("--checkpoint-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--report-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="make each step take at least this long")
    parser.add_argument("--limit-seconds", type=float, default=120.0, help="wait at most this long for another rank")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--attempts", type=int, default=1, help="before this attempt train nine tenths, then wait to be stopped"
    )
    options = parser.parse_args()
    if min(options.steps, options.checkpoint_every, options.report_every) < 1 or options.seed < 0:
        parser.error("steps are 1 or more, seeds 0 or more")
    try:
        return train(options, os.environ)  # noqa: TID251
    except (TrainingError, OSError) as error:
        sys.stderr.write(f"train: {error}\n")
        return getattr(error, "code", TrainingError.code)


if __name__ == "__main__":
    sys.exit(main())
