"""What ``doctor`` is told of Google Cloud."""

from __future__ import annotations

from datetime import timedelta

import pytest

from providers.errors import PermissionDeniedError
from tests.support.gcp_service import NOW, serving


def test_all_is_well() -> None:
    with serving(now=NOW.isoformat()) as (provider, app):
        diagnosis = provider.diagnose()
        assert diagnosis.identity == "nobody (a service on this machine), project a-project"
        assert diagnosis.identity_error is None
        assert [check.error for check in diagnosis.checks] == [None] * 9
        assert diagnosis.clock_ahead is not None
        assert abs(diagnosis.clock_ahead) < timedelta(seconds=10)
        assert diagnosis.latency is not None
        assert timedelta(0) < diagnosis.latency < timedelta(seconds=5)
        assert len(diagnosis.sources) == 2
        assert len(app.seen) == 9


def test_each_call_reads_as_little_as_can_be() -> None:
    with serving(cpu_types=300) as (provider, app):
        provider.diagnose()
        sizes = [len(body) for body in app._rendered.values()]
        assert max(sizes) < 20_000


@pytest.mark.parametrize("seconds", [600, -600])
def test_a_clock_that_is_off(seconds: int) -> None:
    fault = {"match": "", "kind": "clock", "seconds": seconds}
    with serving(fault, now=NOW.isoformat()) as (provider, _):
        ahead = provider.diagnose().clock_ahead
        assert ahead is not None
        assert abs(ahead + timedelta(seconds=seconds)) < timedelta(seconds=10)


def test_a_missing_permission_is_named_and_what_it_costs() -> None:
    with serving({"match": "machineTypes.list", "kind": "forbidden"}) as (provider, _):
        diagnosis = provider.diagnose()
        (broken,) = [check for check in diagnosis.checks if check.error is not None]
        assert broken.permission == "compute.machineTypes.list"
        assert broken.needed_for == "machine types of each zone"
        assert isinstance(broken.error, PermissionDeniedError)
        assert diagnosis.sources == ("nothing: regions, machine types and prices are all needed",)


def test_prices_go_on_without_history() -> None:
    with serving({"match": "capacityHistory", "kind": "forbidden"}) as (provider, _):
        assert len(provider.diagnose().sources) == 1


def test_an_unknown_machine_type_is_no_missing_permission() -> None:
    with serving({"match": "advice.", "kind": "not_found"}) as (provider, _):
        assert all(check.error is None for check in provider.diagnose().checks)
