"""The accelerator of an Azure size, from its name alone; the price book's own machines are the reference."""

from __future__ import annotations

import pytest

from pricing.book_file import embedded_book
from pricing.machines import Machine
from providers.azure.parse.families import UNKNOWN, accelerator_of, is_accelerator_share

MACHINES = [m for m in embedded_book().machines if m.cloud == "azure"]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.instance_type)
def test_it_agrees_with_the_price_book(machine: Machine) -> None:
    assert accelerator_of(machine.instance_type) == machine.accelerator
    assert not is_accelerator_share(machine.instance_type)


@pytest.mark.parametrize(
    ("size", "accelerator"),
    [
        # Microsoft Learn, "GPU accelerated virtual machine sizes" and "Previous generations".
        ("Standard_NCC40ads_H100_v5", "H100-NVL"),
        ("Standard_ND96is_H100_v5", "H100"),
        ("Standard_ND128isr_GB300_v6", "GB300"),
        ("Standard_NC128lds_xl_RTXPRO6000BSE_v6", "RTX-PRO-6000"),
        ("Standard_NC6", "K80"),
        ("Standard_NC6_Promo", "K80"),
        ("Standard_NC24rs_v2", "P100"),
        ("Standard_ND24rs", "P40"),
        ("Standard_NV12s_v3", "M60"),
        ("Standard_NV32as_v4", "MI25"),
        ("Standard_NV8ads_V710_v5", "V710"),
        ("Standard_NG32ads_V620_v1", "V620"),
        ("Standard_ND96asr_A100_v4", "A100-40GB"),
        ("Standard_ND72isr_X900_v9", UNKNOWN),
        ("Standard_NC8s_v9", UNKNOWN),
    ],
)
def test_other_sizes(size: str, accelerator: str) -> None:
    assert accelerator_of(size) == accelerator


@pytest.mark.parametrize(
    "size", ["Standard_D2s_v5", "Standard_NP10s", "Standard_L8s_v3", "Basic_A1", "", "NC6", "Standard_N"]
)
def test_sizes_without_accelerators(size: str) -> None:
    assert accelerator_of(size) is None


@pytest.mark.parametrize("size", ["Standard_NV6ads_A10_v5", "Standard_NV18ads_A10_v5", "Standard_NC8ads_A10_v4"])
def test_a_part_of_an_accelerator_is_told_from_a_whole_one(size: str) -> None:
    assert is_accelerator_share(size)
