"""Train steps of a transformer with PyTorch: the one module that imports it, and only when something is measured.

A plain loop: 32-bit weights, automatic mixed precision, fused attention, AdamW; nothing is compiled.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import psutil
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from router.jobs.step_measurement import DeviceFullError, MeasuredShape, MeasurementError

_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
_HOST_SHARE = 0.5  # of the free memory of the host, where the device has none of its own


def find_device(kind: str) -> TorchDevice | None:
    """Return the device of a kind (auto, cuda, rocm, mps, cpu), None without one; auto never takes the processor."""
    built_for = "rocm" if torch.version.hip else "cuda"
    if kind in ("auto", built_for) and torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        return TorchDevice("cuda", properties.name, properties.total_memory / 2**30)
    host = psutil.virtual_memory().available * _HOST_SHARE / 2**30
    if kind in ("auto", "mps") and torch.backends.mps.is_available():
        return TorchDevice("mps", f"Apple {platform.machine()} GPU", host)
    return TorchDevice("cpu", "cpu", host) if kind == "cpu" else None


@dataclass(frozen=True)
class TorchDevice:
    """The first device of a kind, as PyTorch sees it."""

    kind: str
    name: str
    memory_gib: float

    def prepare(self, shape: MeasuredShape) -> Callable[[], None]:
        """Return a function that trains one step on random tokens and waits for it."""
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("high" if shape.precision == "tf32" else "highest")
        step = self._guard(lambda: _Training(shape, self.kind))
        return lambda: self._guard(lambda: self._wait(step.train()))

    def release(self) -> None:
        """Return cached memory to the device."""
        if self.kind == "cuda":
            torch.cuda.empty_cache()
        if self.kind == "mps":
            torch.mps.empty_cache()

    def _wait(self, _: None) -> None:
        if self.kind == "cuda":
            torch.cuda.synchronize()
        if self.kind == "mps":
            torch.mps.synchronize()

    def _guard(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except (torch.OutOfMemoryError, MemoryError):
            raise DeviceFullError from None
        except RuntimeError as error:
            text = str(error).partition("\n")[0]
            if "out of memory" in text or "can't allocate memory" in text:
                raise DeviceFullError from None
            raise MeasurementError(f"PyTorch cannot train this shape on {self.name}: {text}") from None


class _Training:
    """Weights, their optimizer and a batch on the device."""

    def __init__(self, shape: MeasuredShape, kind: str) -> None:
        self.shape, self.kind = shape, kind
        width, wide = shape.hidden, shape.feed_forward
        self.embedding = self._weight(shape.vocabulary, width)
        sizes = ((3 * width, width), (width, width), (wide, width), (width, wide))
        self.layers = [tuple(self._weight(*size) for size in sizes) for _ in range(shape.layers)]
        weights = [self.embedding, *(weight for layer in self.layers for weight in layer)]
        self.optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=kind == "cuda")
        tokens = torch.randint(shape.vocabulary, (shape.batch, shape.sequence + 1), device=kind)
        self.read, self.expected = tokens[:, :-1], tokens[:, 1:].flatten()

    def _weight(self, *size: int) -> Any:
        return (torch.randn(size, device=self.kind) * 0.02).requires_grad_()

    def train(self) -> None:
        """Do one step: forward, backward, update."""
        with self._mixed():
            x = functional.embedding(self.read, self.embedding)
            for layer in self.layers:
                again = self.shape.recompute
                x = checkpoint(self._layer, x, layer, use_reentrant=False) if again else self._layer(x, layer)
            logits = functional.linear(self._norm(x), self.embedding)
            loss = functional.cross_entropy(logits.flatten(0, 1), self.expected)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _mixed(self) -> AbstractContextManager[Any]:
        half = _HALF.get(self.shape.precision)
        return nullcontext() if half is None else torch.autocast(self.kind, dtype=half)

    def _norm(self, x: Any) -> Any:
        return functional.layer_norm(x, (self.shape.hidden,))

    def _layer(self, x: Any, weights: tuple[Any, ...]) -> Any:
        into, out, up, down = weights
        heads = (*x.shape[:2], self.shape.heads, -1)
        query, key, value = (
            part.view(heads).transpose(1, 2) for part in functional.linear(self._norm(x), into).chunk(3, dim=-1)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=self.shape.causal)
        x = x + functional.linear(seen.transpose(1, 2).flatten(2), out)
        return x + functional.linear(functional.gelu(functional.linear(self._norm(x), up)), down)
