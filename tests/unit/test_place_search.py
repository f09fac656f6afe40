"""Places that are tried after a fault, and places that are not."""

from __future__ import annotations

import pytest

from router.controller.provision.provision_order import PlaceSearch
from router.faults.fault import PASSING, SHORT, UNKNOWN_FAULT, Fault, FaultKind, FaultReach

OFF = Fault(FaultKind.NOT_ENABLED_HERE, FaultReach.REGION)
DENIED = Fault(FaultKind.REFUSED_BY_POLICY, FaultReach.REGION)
NO_RIGHT = Fault(FaultKind.CREDENTIALS, FaultReach.ACCOUNT)
THROTTLED = Fault(FaultKind.THROTTLED, FaultReach.ACCOUNT)


@pytest.mark.parametrize(
    ("fault", "same_region", "same_cloud", "other_cloud"),
    [
        (SHORT, True, True, True),
        (OFF, False, True, True),
        (DENIED, False, True, True),
        (NO_RIGHT, False, False, True),
        (THROTTLED, False, False, True),
        (UNKNOWN_FAULT, False, False, True),
        (PASSING, True, True, True),
    ],
)
def test_reach_decides_what_is_passed_over(
    fault: Fault, same_region: bool, same_cloud: bool, other_cloud: bool
) -> None:
    search = PlaceSearch()
    search.note("aws", "eu-south-2", fault)
    places = [("aws", "eu-south-2"), ("aws", "us-east-1"), ("gcp", "us-east4")]
    assert [search.excludes(*place) is None for place in places] == [same_region, same_cloud, other_cloud]
    assert not search.is_over


def test_words_that_nobody_knows_are_tried_once_more_and_then_stop() -> None:
    search = PlaceSearch()
    search.note("aws", "us-east-1", UNKNOWN_FAULT)
    search.note("gcp", "us-east4", UNKNOWN_FAULT)
    assert search.is_over


@pytest.mark.parametrize("kind", [FaultKind.SETUP, FaultKind.JOB_FAULT, FaultKind.OURS])
def test_what_no_place_can_mend_ends_the_search(kind: FaultKind) -> None:
    search = PlaceSearch()
    search.note("aws", "us-east-1", Fault(kind, FaultReach.JOB))
    assert search.is_over


def test_what_passes_is_tried_once_more_and_a_limited_rate_after_pauses() -> None:
    search = PlaceSearch()
    assert [search.pause_before_retry(PASSING) for _ in range(2)] == [0.0, None]
    assert [search.pause_before_retry(THROTTLED) for _ in range(3)] == [20.0, 60.0, None]
    assert search.pause_before_retry(SHORT) is None
    search.note("aws", "us-east-1", PASSING)
    assert search.pause_before_retry(PASSING) == 0.0


def test_a_place_that_is_passed_over_is_told_with_its_region() -> None:
    search = PlaceSearch()
    search.note("aws", "eu-south-2", DENIED)
    assert search.excludes("aws", "eu-south-2") == "denied by a policy of your organisation in eu-south-2"
