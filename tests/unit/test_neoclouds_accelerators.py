"""Names of accelerators in catalogues, matched with the book's."""

from __future__ import annotations

import pytest

from pricing.book_file import embedded_book
from providers.neoclouds.parse.accelerators import NO_FORM, NO_MEMORY, OTHER_MEMORY, UNKNOWN, AcceleratorIndex

KNOWN = AcceleratorIndex(embedded_book().accelerators)


@pytest.mark.parametrize(
    ("name", "memory", "hint", "found"),
    [
        ("A100", 40.0, "", "A100-40GB"),
        ("A100", 80.0, "", "A100-80GB"),
        ("A100-80GB", None, "", "A100-80GB"),
        ("A100-80GB-SXM", None, "", "A100-80GB"),
        ("A100 SXM4", 81920 / 1024, "", "A100-80GB"),
        ("NVIDIA A100 80GB PCIe", None, "", "A100-80GB"),
        ("Tesla V100", 16384 / 1024, "", "V100-16GB"),
        ("V100-32GB", None, "", "V100-32GB"),
        ("H100", 80.0, "gpu_8x_h100_sxm5", "H100"),
        ("H100", 80.0, "gpu_1x_h100_pcie", "H100-PCIe"),
        ("H100", 80.0, "8H100.80S.176V", "H100"),
        ("H100", 94.0, "", "H100-NVL"),
        ("H100NVL", 94.0, "", "H100-NVL"),
        ("NVIDIA H100 80GB HBM3", None, "", "H100"),
        ("H100-MEGA-80GB", None, "", "H100"),
        ("H200", 143771 / 1024, "", "H200"),
        ("B200", 183359 / 1024, "", "B200"),
        ("B300", 262.0, "", "B300"),
        ("RTXPRO6000", 96.0, "", "RTX-PRO-6000"),
        ("RTX-PRO-6000", None, "", "RTX-PRO-6000"),
        ("L40S", 46068 / 1024, "", "L40S"),
        ("A10G", 24.0, "", "A10G"),
        ("A10", 24.0, "", "A10"),
        ("Tesla T4", 15.0, "", "T4"),
        ("AMD Instinct MI300X OAM", 192.0, "", UNKNOWN),
        ("MI300X", 192.0, "", "MI300X"),
        # Never a neighbour that only begins alike.
        ("L40", 48.0, "", UNKNOWN),
        ("T4G", 16.0, "", UNKNOWN),
        ("A100X", 80.0, "", UNKNOWN),
        ("H200NVL", 141.0, "", UNKNOWN),
        ("RTX4090", 24.0, "", UNKNOWN),
        ("", None, "", UNKNOWN),
        # Never a guess.
        ("H100", 80.0, "", NO_FORM),
        ("H100", None, "8x", NO_FORM),
        ("A100", None, "", NO_MEMORY),
        ("H100", 96.0, "gpu_1x_h100_sxm", OTHER_MEMORY),
        ("GH200", 144.0, "", OTHER_MEMORY),
        ("A100", 60.0, "", OTHER_MEMORY),
    ],
)
def test_a_name_is_one_of_the_books_or_none(name: str, memory: float | None, hint: str, found: str) -> None:
    answer = KNOWN.find(name, memory, hint)
    assert (answer if isinstance(answer, str) else answer.name) == found


def test_every_accelerator_of_the_book_is_known_by_its_own_name() -> None:
    for accelerator in embedded_book().accelerators:
        found = KNOWN.find(accelerator.name, float(accelerator.memory_gib), "sxm" if accelerator.name == "H100" else "")
        assert found == accelerator


def test_the_model_is_the_same_whatever_memory_and_form() -> None:
    assert KNOWN.same_model("H100", "H100-PCIe")
    assert KNOWN.same_model("A100-80GB", "A100-40GB")
    assert not KNOWN.same_model("A10", "A10G")
    assert not KNOWN.same_model("nonsense", "A10G")
