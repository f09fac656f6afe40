"""Instance types: moto carries EC2's own answers about them, so each is held against the book's table."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from fnmatch import fnmatchcase
from typing import Any

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from pricing.book_file import embedded_book
from providers.aws.parse.machines import (
    ACCELERATED,
    FRACTION,
    UNKNOWN_ACCELERATOR,
    UNREADABLE_TYPE,
    MachineTypes,
    find_zones_by_type,
    read_types,
)

BOOK = embedded_book()
TODAY = date(2026, 11, 21)


def _read(*rows: dict[str, Any]) -> MachineTypes:
    return read_types("aws", rows, BOOK, TODAY)


def test_every_type_of_the_book_is_read_as_the_book_has_it() -> None:
    read = {machine.instance_type: machine for machine in _read(*INSTANCE_TYPES.values()).machines}
    compared = 0
    for known in BOOK.machines:
        if known.cloud != "aws" or known.instance_type not in INSTANCE_TYPES:
            continue
        found = read[known.instance_type]
        # What the API does not say stays unknown, and is not compared.
        same = replace(
            found,
            intra_node_interconnect=known.intra_node_interconnect,
            intra_node_gb_per_s=known.intra_node_gb_per_s,
            source=known.source,
            as_of=known.as_of,
            checked=known.checked,
        )
        assert same == known
        compared += 1
    assert compared > 40


def test_what_is_new_is_a_machine_with_unchecked_network() -> None:
    (machine,) = _read(INSTANCE_TYPES["p5e.48xlarge"]).machines
    assert (machine.accelerator, machine.accelerator_count, machine.accelerator_memory_gib) == ("H200", 8, 141)
    assert (machine.inter_node_gbps, machine.fabric, machine.checked) == (3200.0, "efa", False)
    assert machine.intra_node_gb_per_s is None
    assert machine.as_of == "2026-11-21"


@pytest.mark.parametrize("name", ["inf2.xlarge", "trn1.32xlarge", "g5g.xlarge", "g7.2xlarge", "dl2q.24xlarge"])
def test_accelerators_that_the_book_does_not_know_are_dropped(name: str) -> None:
    read = _read(INSTANCE_TYPES[name])
    assert [(drop.row, drop.why) for drop in read.dropped] == [(name, UNKNOWN_ACCELERATOR)]


@pytest.mark.parametrize(
    ("manufacturer", "name", "mib"),
    [("AMD", "Radeon Pro V520", 8192), ("NVIDIA", "M60", 8192), ("NVIDIA", "H100", 40_000), ("Habana", "HL-205", 1)],
)
def test_other_gpus_are_dropped(manufacturer: str, name: str, mib: int) -> None:
    gpu = {"Manufacturer": manufacturer, "Name": name, "Count": 1, "MemoryInfo": {"SizeInMiB": mib}}
    row = {**INSTANCE_TYPES["g5.xlarge"], "InstanceType": "x9.large", "GpuInfo": {"Gpus": [gpu]}}
    assert [drop.why for drop in _read(row).dropped] == [UNKNOWN_ACCELERATOR]


def test_a_part_of_a_gpu_is_no_gpu() -> None:
    assert [drop.why for drop in _read(INSTANCE_TYPES["g6f.large"]).dropped] == [FRACTION]


def test_a_type_without_an_accelerator_is_not_of_interest() -> None:
    assert _read(INSTANCE_TYPES["m5.large"]) == MachineTypes((), ())


def test_what_the_api_leaves_out_is_not_guessed() -> None:
    row = {key: value for key, value in INSTANCE_TYPES["g5.xlarge"].items() if key != "NetworkInfo"}
    (machine,) = _read(row).machines
    assert (machine.inter_node_gbps, machine.fabric) == (None, None)
    (dropped,) = _read({**row, "MemoryInfo": {}}).dropped
    assert dropped.why == UNREADABLE_TYPE


def test_the_families_that_are_asked_for_hold_every_type_with_a_gpu() -> None:
    with_gpus = [name for name, row in INSTANCE_TYPES.items() if row.get("GpuInfo")]
    assert with_gpus
    assert [name for name in with_gpus if not any(fnmatchcase(name, pattern) for pattern in ACCELERATED)] == []


def test_offerings_are_by_zone_id() -> None:
    rows = [
        {"InstanceType": "p5.48xlarge", "Location": "use1-az4"},
        {"InstanceType": "p5.48xlarge", "Location": "use1-az6"},
        {"InstanceType": "g5.xlarge", "Location": "use1-az4"},
    ]
    assert find_zones_by_type(rows) == {"p5.48xlarge": {"use1-az4", "use1-az6"}, "g5.xlarge": {"use1-az4"}}
