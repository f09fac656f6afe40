"""Stands in for torch where a gang is measured: tensors without memory, and an all-reduce of values by sockets.

``STAND_IN_GB_PER_S`` is the bus bandwidth that an all-reduce of many bytes seems to have.
"""

from __future__ import annotations

import sys
from typing import Any

import torch_distributed as distributed  # type: ignore[import-not-found]

# One file is no package: `import torch.distributed` finds it here.
sys.modules["torch.distributed"] = distributed
float64 = "float64"


class device:  # noqa: N801  (torch names it so)
    def __init__(self, kind: str, index: int = 0) -> None:
        self.kind, self.index = kind, index


class Tensor:
    """A tensor of which the bytes count, and the first value."""

    def __init__(self, value: float, size: int) -> None:
        self.value, self.size = value, size

    def item(self) -> float:
        """The first value."""
        return self.value


def zeros(count: int, device: Any = None) -> Tensor:
    """Return a tensor of that many numbers of four bytes."""
    return Tensor(0.0, 4 * count)


def tensor(values: list[float], dtype: Any = None, device: Any = None) -> Tensor:
    """Numbers of eight bytes."""
    return Tensor(values[0], 8 * len(values))


class cuda:  # noqa: N801  (torch names it so)
    @staticmethod
    def is_available() -> bool:
        return False
