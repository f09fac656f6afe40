"""Where a job may run: clouds, regions, countries, groups; and what nobody knows is not permitted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from pricing.book_file import embedded_book
from pricing.places import Region
from router.jobs.fields import nearest_word
from router.jobs.residency import Residency, residency_refusal, unknown_tokens
from tests.support.books import a_region

VIRGINIA = a_region("aws/us-east-1")
FRANKFURT = replace(a_region("aws/eu-central-1", "EU", "DE"), residency_group="EU")
NORWAY = replace(a_region("azure/norwayeast", "EU", "NO"), residency_group="EEA")
LONDON = replace(a_region("gcp/europe-west2", "EU", "GB"), residency_group="UK")
NOWHERE = replace(a_region("lambda/mystery-1"), country=None, residency_group=None)
ALL = (VIRGINIA, FRANKFURT, NORWAY, LONDON, NOWHERE)


def rules(allow: object = (), deny: object = ()) -> Residency:
    return Residency.model_validate({"allow": allow, "deny": deny})


def permitted(residency: Residency) -> list[str]:
    return [str(region.id) for region in ALL if residency_refusal(residency, region) is None]


def test_without_rules_anywhere() -> None:
    assert len(permitted(rules())) == len(ALL)


@pytest.mark.parametrize(
    ("token", "inside"),
    [
        ("aws", ["aws/us-east-1", "aws/eu-central-1"]),
        ("aws/us-east-1", ["aws/us-east-1"]),
        ("us-east-1", ["aws/us-east-1"]),
        ("DE", ["aws/eu-central-1"]),
        ("EU", ["aws/eu-central-1"]),
        ("EEA", ["aws/eu-central-1", "azure/norwayeast"]),
        ("UK", ["gcp/europe-west2"]),
        ("GB", ["gcp/europe-west2"]),
        ("US", ["aws/us-east-1"]),
    ],
)
def test_each_kind_of_rule(token: str, inside: list[str]) -> None:
    assert permitted(rules(allow=[token])) == inside


def test_one_rule_of_several_is_enough_to_allow() -> None:
    assert permitted(rules(allow=["EU", "gcp"])) == ["aws/eu-central-1", "gcp/europe-west2"]


def test_a_denied_place_is_denied_inside_an_allowed_one() -> None:
    assert permitted(rules(allow="EEA", deny="DE")) == ["azure/norwayeast"]
    assert residency_refusal(rules(allow="EEA", deny="DE"), FRANKFURT) == "DE is denied"


def test_the_reason_names_the_rule() -> None:
    assert residency_refusal(rules(allow=["EU", "UK"]), VIRGINIA) == "aws/us-east-1 is not in EU, UK"


@pytest.mark.parametrize("residency", [rules(deny="US"), rules(allow="EU"), rules(allow=["lambda", "EU"])])
def test_an_unknown_country_satisfies_no_rule_about_countries(residency: Residency) -> None:
    assert "unknown" in (residency_refusal(residency, NOWHERE) or "")


def test_an_unknown_country_does_not_matter_to_other_rules() -> None:
    assert residency_refusal(rules(allow="lambda", deny="aws"), NOWHERE) is None


def test_half_known_is_unknown() -> None:
    half = replace(FRANKFURT, residency_group=None)
    assert "unknown" in (residency_refusal(rules(allow="DE"), half) or "")


@pytest.mark.parametrize("bad", [{"allow": "EU", "deny": "EU"}, {"allow": [""]}, {"allow": [5]}, {"only": "EU"}])
def test_nonsense_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Residency.model_validate(bad)


def test_tokens_that_name_nothing_come_with_what_was_meant() -> None:
    residency = rules(allow=["EU", "aws", "us-esat-1", "FR"], deny=["Mars"])
    found = dict(unknown_tokens(residency, ALL))
    assert found["us-esat-1"] == "us-east-1"
    assert set(found) == {"us-esat-1", "FR", "Mars"}
    assert found["Mars"] is None
    assert unknown_tokens(rules(allow="eu"), ALL) == [("eu", "EU")]


def test_nearest_is_blind_to_case_and_finds_swapped_letters() -> None:
    assert nearest_word("h100", ["H100", "H200"]) == "H100"
    assert nearest_word("us-esat-1", ["us-west-1", "us-east-1"]) == "us-east-1"
    assert nearest_word("zzz", ["H100"]) is None


def known_regions() -> tuple[Region, ...]:
    return embedded_book().regions


def test_the_groups_hold_in_the_embedded_book() -> None:
    """Ireland is in the EU, Norway in the EEA only, Switzerland in neither, London in the UK."""
    places = {str(region.id): region for region in known_regions()}
    eu, eea, uk = rules(allow="EU"), rules(allow="EEA"), rules(allow="UK")

    def groups(name: str) -> str:
        pairs = (("EU", eu), ("EEA", eea), ("UK", uk))
        return " ".join(word for word, rule in pairs if residency_refusal(rule, places[name]) is None)

    assert groups("aws/eu-west-1") == "EU EEA"
    assert groups("azure/norwayeast") == "EEA"
    assert groups("aws/eu-west-2") == "UK"
    assert groups("gcp/europe-west6") == ""
    assert groups("aws/us-east-1") == ""
