"""A function that ends its process as the kernel does when memory runs out."""

from __future__ import annotations

import os
import signal


def killed(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
