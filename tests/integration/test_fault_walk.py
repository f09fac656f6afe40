"""Whatever is killed at whatever stage of an apply or a destroy, one more command sets everything right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.deployed import Template
from tests.support.fault_walk import Step, sampled, table, take, templates, walk
from tests.support.faults import BOTH_KILLED, BY_NAME, STATE_LOST, STEPFARE_KILLED, WAITING
from tests.support.seen_machines import SeenMachines
from tests.support.terraform_runs import needs_engine

pytestmark = needs_engine

FEW = (
    Step(BY_NAME["PLANNED"], STEPFARE_KILLED, "destroy"),
    Step(BY_NAME["before apply locks the state"], STEPFARE_KILLED, "sweep"),
    Step(BY_NAME["apply, 2 of 3 machines"], BOTH_KILLED, "apply"),
    Step(BY_NAME["apply, 1 of 3 machines"], STATE_LOST, "sweep"),
)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Template]:
    """Planned once."""
    return templates(tmp_path_factory.mktemp("plans"))


@pytest.fixture(scope="module")
def seen_machines() -> Iterator[SeenMachines]:
    with SeenMachines() as looking:
        yield looking


@pytest.mark.slow
@pytest.mark.parametrize("step", FEW, ids=lambda s: f"{s.stage.name}, {s.fault.name}, then {s.follow_up}")
def test_one_more_command_sets_it_right(
    step: Step, planned: Mapping[str, Template], seen_machines: SeenMachines, tmp_path: Path
) -> None:
    verdict = take(step, planned[WAITING], tmp_path / "site", seen_machines)
    assert verdict.wrong == ()
    assert not verdict.skipped


@pytest.mark.slow
def test_the_walk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every stage, and half of the faults, with one of the commands after each in turn. All of them: `make walk`."""
    verdicts = walk(sampled(), tmp_path)
    with capsys.disabled():
        print(f"\n{table(verdicts)}")  # noqa: T201  the table is what this test is for
    wrong = {f"{v.step.stage.name}, {v.step.fault.name}, {v.step.follow_up}": v.wrong for v in verdicts if v.wrong}
    assert wrong == {}
    assert len(verdicts) > 40
