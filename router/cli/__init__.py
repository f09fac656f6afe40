"""Command line: each command reads its arguments, calls one function, renders the result and returns an exit code.

Before any command imports numpy, the package lets it use the same kernels on every x86-64 machine, so that equal inputs
give equal plans to the byte.

numpy and its linear algebra pick code by the processor: with AVX-512 an exponential or a product differs in its last
bit, and a search that compares costs then ends at another plan of the same worth. Last bits also depend on the number
of threads. What a user has set himself stays. Not held: machines without AVX2, and ARM.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROCESSORS: Final = Path("/proc/cpuinfo")
_FIRST_PROCESSOR: Final = 8192  # characters that hold the flags of one processor


def fix_numeric_kernels() -> None:
    """Set kernels and threads of numpy by environment variables, for child processes too; call it before the import."""
    for name, value in _settings(_processor_flags()).items():
        os.environ.setdefault(name, value)  # noqa: TID251  this module is the edge


def _settings(flags: frozenset[str]) -> dict[str, str]:
    settings = {"OPENBLAS_NUM_THREADS": "1"}
    if "avx2" in flags:
        settings["OPENBLAS_CORETYPE"] = "Haswell"
    if "avx512f" in flags:  # numpy warns of what a processor lacks
        settings["NPY_DISABLE_CPU_FEATURES"] = "X86_V4 AVX512_ICL AVX512_SPR"
    return settings


def _processor_flags() -> frozenset[str]:
    """Return what the first processor can do; nothing where the system does not say."""
    with suppress(OSError), _PROCESSORS.open(encoding="ascii", errors="replace") as file:
        for line in file.read(_FIRST_PROCESSOR).splitlines():
            if line.startswith("flags"):
                return frozenset(line.split())
    return frozenset()


fix_numeric_kernels()
