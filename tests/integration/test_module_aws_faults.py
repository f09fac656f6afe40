"""What EC2 does when it does not do what it is told: the words reach the caller, and after destroy nothing is left, by
moto's own account."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pricing.places import Market
from terraform.errors import ApplyFailedError, DestroyFailedError, PreviewFailedError
from terraform.render import parse_nodes
from tests.support.terraform_moto import Cloud, calls, faults, gang
from tests.support.terraform_runs import needs_engine

pytestmark = [needs_engine, pytest.mark.slow]


def test_partial_capacity_is_released_whole(aws: Cloud, tmp_path: Path) -> None:
    before = aws.inventory()
    file = faults(
        tmp_path / "faults", refuse=[{"call": "RunInstances", "code": "InsufficientInstanceCapacity", "after": 2}]
    )
    runner = aws.runner(file, AWS_MAX_ATTEMPTS="1")
    aws.prepare(tmp_path / "run", gang("a-1"))
    with pytest.raises(ApplyFailedError) as failed:
        runner.apply(tmp_path / "run", preview=runner.preview(tmp_path / "run"))
    errors = [d for d in failed.value.diagnostics if d.is_error]
    assert len(errors) == 2
    for error in errors:
        assert error.summary.startswith(
            "creating EC2 Instance: operation error EC2: RunInstances, https response error"
        )
        assert (
            "api error InsufficientInstanceCapacity: We currently do not have sufficient p5.48xlarge" in error.summary
        )
        assert error.address.startswith("module.gang.aws_instance.node[")
    assert len(aws.machines("a-1")) == 2

    runner.destroy(tmp_path / "run")
    assert aws.inventory() == before
    assert runner.state(tmp_path / "run") == ()


def test_a_gang_that_was_had_in_part_is_made_whole_by_another_apply(aws: Cloud, tmp_path: Path) -> None:
    before = aws.inventory()
    order = {"call": "RunInstances", "code": "InsufficientInstanceCapacity", "after": 3, "times": 1}
    file = faults(tmp_path / "faults", refuse=[order])
    runner = aws.runner(file, AWS_MAX_ATTEMPTS="1")
    aws.prepare(tmp_path / "run", gang("a-2"))
    with pytest.raises(ApplyFailedError, match="InsufficientInstanceCapacity"):
        runner.apply(tmp_path / "run")
    first = aws.ids("a-2")
    assert len(first) == 3
    nodes = parse_nodes(runner.apply(tmp_path / "run").outputs)
    assert {str(node.rank): node.id for node in nodes} == aws.ids("a-2")
    assert first.items() < aws.ids("a-2").items()  # none made twice, none replaced
    runner.destroy(tmp_path / "run")
    assert aws.inventory() == before


def test_throttling_is_sat_out(aws: Cloud, tmp_path: Path) -> None:
    before = aws.inventory()
    file = faults(tmp_path / "faults", refuse=[{"call": "RunInstances", "code": "RequestLimitExceeded", "times": 3}])
    runner = aws.runner(file, AWS_MAX_ATTEMPTS="8")
    aws.prepare(tmp_path / "run", gang("a-3"))
    runner.apply(tmp_path / "run")
    assert len(aws.machines("a-3")) == 4
    assert Counter(calls(file, "RunInstances")) == {"RequestLimitExceeded": 3, "-": 4}
    runner.destroy(tmp_path / "run")
    assert aws.inventory() == before


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("RunInstances", "RequestLimitExceeded"),
        ("RunInstances", "VcpuLimitExceeded"),
        ("RunInstances", "AuthFailure"),
        ("CreateSecurityGroup", "UnauthorizedOperation"),
    ],
)
def test_a_refusal_for_good_leaves_nothing(aws: Cloud, tmp_path: Path, call: str, code: str) -> None:
    before = aws.inventory()
    file = faults(tmp_path / "faults", refuse=[{"call": call, "code": code}])
    runner = aws.runner(file, AWS_MAX_ATTEMPTS="2")
    aws.prepare(tmp_path / "run", gang("a-4", market=Market.ON_DEMAND))
    with pytest.raises(ApplyFailedError, match=f"{call}, https response error StatusCode: .* api error {code}"):
        runner.apply(tmp_path / "run")
    assert aws.machines("a-4") == {}
    runner.destroy(tmp_path / "run")
    assert aws.inventory() == before


def test_a_machine_that_never_runs_is_known_and_released_or_made_anew(aws: Cloud, tmp_path: Path) -> None:
    before = aws.inventory()
    file = faults(tmp_path / "faults", pending=["2"])
    aws.prepare(tmp_path / "run", gang("a-5"))
    with pytest.raises(ApplyFailedError, match=r"waiting for EC2 Instance \(i-\w+\) create: timeout") as failed:
        aws.runner(file).apply(tmp_path / "run")
    assert failed.value.diagnostics[0].address == 'module.gang.aws_instance.node["2"]'
    first = aws.ids("a-5")
    assert sorted(first) == ["0", "1", "2", "3"]

    # The machine exists and costs money: the state knows it, and puts another in its place.
    preview = aws.runner().preview(tmp_path / "run")
    address = 'module.gang.aws_instance.node["2"]'
    assert (preview.creates, preview.destroys) == ((address,), (address,))
    aws.runner().apply(tmp_path / "run", preview=preview)
    second = aws.ids("a-5")
    assert {rank for rank in first if first[rank] != second[rank]} == {"2"}

    aws.runner().destroy(tmp_path / "run")
    assert aws.inventory() == before


def test_one_that_is_never_healthy_is_released(aws: Cloud, tmp_path: Path) -> None:
    before = aws.inventory()
    file = faults(tmp_path / "faults", pending=["0", "1", "2", "3"])
    aws.prepare(tmp_path / "run", gang("a-6"))
    with pytest.raises(ApplyFailedError, match="last state: 'pending'"):
        aws.runner(file).apply(tmp_path / "run")
    assert len(aws.machines("a-6")) == 4
    aws.runner(file).destroy(tmp_path / "run")
    assert aws.inventory() == before


def test_a_release_that_is_refused_forgets_nothing(aws: Cloud, tmp_path: Path) -> None:
    before = aws.inventory()
    file = faults(tmp_path / "faults", refuse=[{"call": "TerminateInstances", "code": "UnauthorizedOperation"}])
    aws.prepare(tmp_path / "run", gang("a-7"))
    aws.runner().apply(tmp_path / "run")
    with pytest.raises(DestroyFailedError, match=r"deleting EC2 Instance \(i-\w+\): .*UnauthorizedOperation"):
        aws.runner(file).destroy(tmp_path / "run")
    assert len(aws.machines("a-7")) == 4
    aws.runner().destroy(tmp_path / "run")
    assert aws.inventory() == before


def test_a_preview_that_may_not_look_fails_and_changes_nothing(aws: Cloud, tmp_path: Path) -> None:
    before = aws.inventory()
    file = faults(tmp_path / "faults", refuse=[{"call": "DescribeInstances", "code": "AuthFailure"}])
    aws.prepare(tmp_path / "run", gang("a-8", count=1))
    aws.runner().apply(tmp_path / "run")
    made = aws.ids("a-8")
    with pytest.raises(PreviewFailedError, match="api error AuthFailure"):
        aws.runner(file).preview(tmp_path / "run")
    assert aws.ids("a-8") == made
    aws.runner().destroy(tmp_path / "run")
    assert aws.inventory() == before
