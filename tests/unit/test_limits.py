"""The limits file's content: what it may say, its defaults, and what is refused."""

from __future__ import annotations

import copy
from decimal import Decimal
from typing import Any

import pytest
from pydantic import ValidationError

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.jobs.limits import Discount, Limit, Limits, Reservation

CONTENT: dict[str, Any] = {
    "clouds": ["aws", "gcp"],
    "default_cap_machines": 8,
    "limits": [
        {"name": "p5", "region": "aws/us-east-1", "family": "p5", "market": "spot", "amount": 384, "unit": "vcpus"},
        {"name": "b200", "accelerator": "B200", "amount": 4, "unit": "machines", "kind": "stock"},
    ],
    "reservations": [
        {
            "name": "until June",
            "cloud": "aws",
            "region": "us-east-1",
            "instance_type": "p5.48xlarge",
            "machines": 2,
            "usd_per_hour": "$33.02",
        }
    ],
    "discounts": [{"cloud": "gcp", "family": "a2", "percent": 12.5}, {"cloud": "gcp", "percent": "20%"}],
    "teams": [{"team": "red", "budget": "$12000", "spent": 7450.5}],
    "egress_month_to_date_gb": {"aws": 9900, "gcp": "1200.25"},
}


def parsed(**changes: Any) -> Limits:
    return Limits.model_validate(copy.deepcopy(CONTENT) | changes)


def reasons(document: object) -> str:
    with pytest.raises(ValidationError) as caught:
        Limits.model_validate(document)
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in caught.value.errors())


def test_a_whole_file() -> None:
    limits = parsed()
    assert limits.limits[0] == Limit(
        name="p5",
        cloud="aws",
        region="us-east-1",
        family=("p5",),
        market=Market.SPOT,
        amount=384,
        unit="vcpus",
        kind="quota",
    )
    assert limits.limits[1].market is None
    assert limits.reservations[0].usd_per_hour == UsdPerHour.parse("33.02")
    assert [discount.percent for discount in limits.discounts] == [Decimal("12.5"), Decimal(20)]
    assert (limits.teams[0].budget, limits.teams[0].spent) == (Usd.parse(12000), Usd.parse("7450.5"))
    assert limits.egress_month_to_date_gb == {"aws": Decimal(9900), "gcp": Decimal("1200.25")}
    assert limits.clouds == ("aws", "gcp")


def test_nothing_said_limits_nothing() -> None:
    none = Limits.none()
    assert Limits.model_validate({}) == none
    assert (none.limits, none.reservations, none.discounts, none.teams) == ((), (), (), ())
    assert (none.clouds, none.default_cap_machines, none.egress_month_to_date_gb) == (None, None, {})


def test_a_section_without_content_is_as_if_not_written() -> None:
    assert Limits.model_validate(dict.fromkeys(CONTENT)) == Limits.none()


def test_an_amount_of_zero_forbids_and_is_kept() -> None:
    assert parsed(limits=[{"name": "no", "cloud": "aws", "amount": 0, "unit": "machines"}]).limits[0].amount == 0


def test_it_reads_back_what_it_writes() -> None:
    assert Limits.model_validate(parsed().model_dump(mode="json")) == parsed()


def test_a_discount_is_called_by_what_it_is_for() -> None:
    assert str(Discount(cloud="gcp", family="a2", market=Market.SPOT, percent=Decimal(5))) == "gcp a2 spot"


@pytest.mark.parametrize(
    ("document", "word"),
    [
        ({"quota": []}, "quota"),
        ({"limits": [{"name": "a", "amount": 1, "unit": "gpus"}]}, "unit"),
        ({"limits": [{"name": "a", "amount": -1, "unit": "vcpus"}]}, "amount"),
        ({"limits": [{"name": "a", "amount": 1.5, "unit": "vcpus"}]}, "whole number"),
        ({"limits": [{"amount": 1, "unit": "vcpus"}]}, "name"),
        ({"limits": [{"name": "a", "amount": 1, "unit": "vcpus", "market": "cheap"}]}, "market"),
        ({"limits": [{"name": "a", "cloud": "gcp", "region": "aws/x", "amount": 1, "unit": "vcpus"}]}, "of aws"),
        ({"limits": [{"name": "a", "amount": 1, "unit": "vcpus"}] * 2}, "twice"),
        ({"reservations": [CONTENT["reservations"][0] | {"machines": 0}]}, "machines"),
        ({"reservations": [CONTENT["reservations"][0] | {"usd_per_hour": "-3"}]}, "usd_per_hour"),
        ({"reservations": CONTENT["reservations"] * 2}, "twice"),
        ({"discounts": [{"cloud": "gcp", "percent": 101}]}, "100"),
        ({"discounts": [{"cloud": "gcp", "percent": -5}]}, "percent"),
        ({"discounts": [{"cloud": "gcp", "percent": 5}, {"cloud": "gcp", "percent": 7}]}, "twice"),
        ({"teams": [{"team": "red", "budget": "-$5"}]}, "negative"),
        ({"teams": [{"team": "red", "budget": "€5"}]}, "budget"),
        ({"teams": [{"team": "red", "budget": 5}, {"team": "red", "budget": 6}]}, "twice"),
        ({"egress_month_to_date_gb": {"aws": -1}}, "aws"),
        ({"egress_month_to_date_gb": [5]}, "egress_month_to_date_gb"),
        ({"default_cap_machines": 0}, "default_cap_machines"),
        ([], "Limits"),
    ],
)
def test_what_makes_no_sense_is_refused(document: object, word: str) -> None:
    assert word in reasons(document)


def test_a_reservation_names_its_region_with_or_without_cloud() -> None:
    written = {key: value for key, value in CONTENT["reservations"][0].items() if key not in ("cloud", "region")}
    short = Reservation.model_validate({**written, "region": "aws/us-east-1"})
    assert short == Reservation.model_validate(CONTENT["reservations"][0])
