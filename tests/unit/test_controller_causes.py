"""Why machines could not be made, from texts that providers of Terraform really printed; each with the thread that it
was shown in (names and ids shortened)."""

from __future__ import annotations

import json

import pytest

from router.controller.history.causes import FailureCause, cause_of
from terraform.diagnostics import Diagnostic
from terraform.errors import (
    ApplyFailedError,
    EngineMissingError,
    EngineTooOldError,
    InitFailedError,
    OrphansLeftError,
    PreviewFailedError,
    ReadFailedError,
    RunDirectoryError,
    StateLockedError,
    StateLostError,
    StoppedError,
    TerraformError,
    TimedOutError,
)
from tests.support.repository import ROOT

SEEN = {
    row["thread"]: (FailureCause(row["cause"]), row["text"])
    for row in json.loads((ROOT / "tests/recorded/terraform/provider_errors.json").read_text(encoding="utf-8"))
}


def failed(*texts: str, severity: str = "error") -> ApplyFailedError:
    return ApplyFailedError("apply failed", [Diagnostic(severity, text) for text in texts])


@pytest.mark.parametrize("thread", SEEN)
def test_what_providers_really_printed(thread: str) -> None:
    cause, text = SEEN[thread]
    assert cause_of(failed(text)) is cause
    summary, _, detail = text.partition(": ")
    assert cause_of(ApplyFailedError("x", [Diagnostic("error", summary, f"{summary}: {detail}")])) is cause
    assert cause_of(PreviewFailedError("x", [Diagnostic("error", text)])) is cause


@pytest.mark.parametrize(
    "code",
    [
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacityOnHost",
        "UnfulfillableCapacity",
        "ZONE_RESOURCE_POOL_EXHAUSTED",
        "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        "ZonalAllocationFailed",
        "AllocationFailed",
    ],
)
def test_codes_of_a_stock_out(code: str) -> None:
    assert cause_of(failed(f"creating machine: {code}: sorry")) is FailureCause.SHORT


@pytest.mark.parametrize(
    "text",
    [
        "creating EC2 Instance: InvalidAMIID.NotFound: The image id '[ami-0]' does not exist",
        "Error creating instance: googleapi: Error 400: Invalid value for field 'resource.machineType', invalid",
        "dial tcp: lookup ec2.us-east-1.amazonaws.com: no such host",
        "creating EC2 Launch Template (quota-planner-1a2b): InvalidParameterValue: no",
        # Jobs may be called anything.
        'aws_instance.node["0"] (no-capacity-1a2b-0): InvalidParameterValue: user data is too long',
        "Error creating stockout-forecast-0123456789-0: invalid",
        "module.gang: capacity-not-available-0123456789-3 is no name",
        "aws_instance price-too-low-0123456789-3: InvalidParameterValue",
        "google_compute_instance my-STOCKOUT-0: invalid",
        "tag team=throttling of gang slowdown-0123456789 is not valid",
        "",
    ],
)
def test_what_says_nothing_of_that_kind_is_a_failure_and_another_place_is_tried(text: str) -> None:
    assert cause_of(failed(text)) is FailureCause.FAILED
    assert FailureCause.FAILED.tries_elsewhere
    assert not FailureCause.FAILED.is_the_pools


def test_warnings_are_no_cause() -> None:
    assert cause_of(failed("InsufficientInstanceCapacity: none", severity="warning")) is FailureCause.FAILED


def test_of_several_errors_what_is_ours_comes_first() -> None:
    """A place that is short and one's own missing rights: trying elsewhere would not help."""
    assert (
        cause_of(failed("InsufficientInstanceCapacity: none", "UnauthorizedOperation: no")) is FailureCause.CREDENTIALS
    )
    assert cause_of(failed("other trouble", "InsufficientInstanceCapacity: none")) is FailureCause.SHORT
    assert (
        cause_of(failed("InsufficientInstanceCapacity: none", "write x: No space left on device")) is FailureCause.HERE
    )
    assert cause_of(failed("open /runs/a: disk quota exceeded")) is FailureCause.HERE


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (EngineMissingError("none"), FailureCause.HERE),
        (EngineTooOldError("old"), FailureCause.HERE),
        (RunDirectoryError("full"), FailureCause.HERE),
        (StateLostError("empty"), FailureCause.HERE),
        (StateLockedError("locked"), FailureCause.HERE),
        (InitFailedError("no provider"), FailureCause.HERE),
        (StoppedError("stopped", [Diagnostic("error", "InsufficientInstanceCapacity: none")]), FailureCause.STOPPED),
        (TimedOutError("30 minutes"), FailureCause.UNHEALTHY),
        (TimedOutError("30 minutes", [Diagnostic("error", "InsufficientInstanceCapacity: none")]), FailureCause.SHORT),
        (ReadFailedError("no outputs"), FailureCause.FAILED),
        (OrphansLeftError("3 processes"), FailureCause.FAILED),
        (TerraformError("anything"), FailureCause.FAILED),
    ],
)
def test_errors_of_the_runner(error: TerraformError, cause: FailureCause) -> None:
    assert cause_of(error) is cause


def test_what_is_tried_elsewhere_and_what_is_remembered() -> None:
    assert {cause for cause in FailureCause if not cause.tries_elsewhere} == {
        FailureCause.CREDENTIALS,
        FailureCause.STOPPED,
        FailureCause.HERE,
        FailureCause.JOB,
    }
    assert {cause for cause in FailureCause if cause.is_the_pools} == {
        FailureCause.SHORT,
        FailureCause.QUOTA,
        FailureCause.UNHEALTHY,
        FailureCause.PRICE,
    }


def test_a_long_text_is_read_at_once() -> None:
    """A failure message of AWS is kilobytes of letters without a space."""
    text = "creating EC2 Instance: " + "aZ_" * 100_000
    assert cause_of(failed(text)) is FailureCause.FAILED
