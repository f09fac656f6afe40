"""Every x86-64 machine makes the same plan: numpy's kernels are fixed before it is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from router import cli
from tests.support.repository import ROOT

SEEN = """
import router.cli, os
from numpy._core._multiarray_umath import __cpu_features__ as found
print(os.environ["OPENBLAS_NUM_THREADS"], os.environ.get("OPENBLAS_CORETYPE", ""), found.get("X86_V4", False))
"""


def settings_on(flags: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables that are set on a machine whose processor has these flags."""
    file = folder / "cpuinfo"
    file.write_text(f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t:\n", encoding="ascii")
    monkeypatch.setattr(cli, "_PROCESSORS", file)
    return cli._settings(cli._processor_flags())


def test_a_command_computes_as_a_machine_with_avx2_alone() -> None:
    """AVX-512 has other exponentials and other products, to the last bit."""
    own = ("OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES")
    clean = {name: value for name, value in os.environ.items() if name not in own}
    done = subprocess.run(
        [sys.executable, "-c", SEEN], env={**clean, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    threads, kernels, has_avx512 = done.stdout.rstrip("\n").split(" ")
    assert (threads, has_avx512) == ("1", "False")
    assert kernels == ("Haswell" if "avx2" in cli._processor_flags() else "")


def test_nothing_is_taken_from_a_processor_that_lacks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = settings_on("fpu sse2 ssse3", tmp_path, monkeypatch)
    avx2 = settings_on("fpu sse2 avx avx2 fma", tmp_path, monkeypatch)
    avx512 = settings_on("fpu avx2 avx512f avx512vl", tmp_path, monkeypatch)
    assert [sorted(found) for found in (old, avx2, avx512)] == [
        ["OPENBLAS_NUM_THREADS"],
        ["OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS"],
        ["NPY_DISABLE_CPU_FEATURES", "OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS"],
    ]


def test_a_system_that_does_not_tell_its_processor_sets_the_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_PROCESSORS", tmp_path / "none")
    assert cli._settings(cli._processor_flags()) == {"OPENBLAS_NUM_THREADS": "1"}
