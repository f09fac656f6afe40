"""How a gang went, against every way in which three ranks can have gone."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from router.coordinator.gang_session import gang_result
from tests.support.coordinations import gang_records

ALL = ("", "finished", "stopped", "crashed", "no_gang")


def _verdict(engine: str, reasons: tuple[str, ...], ordered: bool) -> str:
    nodes = gang_records(len(reasons))[1]
    ended = [replace(node, ended_reason=reason) for node, reason in zip(nodes, reasons, strict=True)]
    return gang_result(engine, ended, ordered=ordered)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("engine", ["command", "torchrun", "ray", "slurm"])
def test_every_combination(engine: str, ordered: bool) -> None:
    for reasons in product(ALL, repeat=3):
        result = _verdict(engine, reasons, ordered)
        failed = {"crashed", "no_gang", *([] if ordered else ["stopped"])} & set(reasons)
        if engine in ("ray", "slurm") and reasons[0]:
            assert result == reasons[0]
        elif failed:
            assert result in failed
            assert result != "stopped" or failed == {"stopped"}
        elif engine in ("ray", "slurm") or "" in reasons:
            assert result == ""
        else:
            assert result == ("stopped" if "stopped" in reasons else "finished")
