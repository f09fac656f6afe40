"""A job from what a user writes: forms that mean the same, defaults, and what is refused with which words."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from pricing.money import Usd
from pricing.places import RegionId
from router.jobs.quantities import Moment, format_duration, parse_duration, parse_gib
from router.jobs.spec import Job, find_literal_secrets
from tests.support.narrowed import present

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
JOB: dict[str, Any] = {
    "name": "llama-7b",
    "team": "red",
    "steps": 1000,
    "workload": {"profile": [{"accelerator": "H100", "count": 8, "steps_per_hour": 60}]},
    "gang": {"accelerators": "H100:8"},
}
SHAPE = {"parameters": "7B", "layers": 32, "hidden": 4096, "sequence_length": 2048, "tokens_per_step": 65536}


def job(**changes: Any) -> Job:
    return Job.model_validate(copy.deepcopy(JOB) | changes)


def refusal(**changes: Any) -> str:
    """Where, why and what to write instead, in lower case."""
    with pytest.raises(ValidationError) as caught:
        job(**changes)
    words = []
    for error in caught.value.errors():
        remedy = getattr(error.get("ctx", {}).get("error"), "remedy", "")
        words.append(f"{'.'.join(map(str, error['loc']))}: {error['msg']} {remedy}")
    return "; ".join(words).lower()


def test_defaults_are_those_of_the_documentation() -> None:
    plain = job()
    assert (plain.confidence, plain.priority, plain.max_wait) == (0.95, 0, timedelta(days=7))
    assert (plain.startup, plain.checkpoint, plain.deadline) == (timedelta(minutes=10), None, None)
    assert (plain.market.spot, plain.gang.regions, plain.gang.same_zone) == ("allowed", 1, True)
    assert (plain.gang.rdma, plain.gang.on_demand_share, plain.gang.min_saving) == ("optional", 0, Usd.parse(1))
    assert plain.steps_left == 1000


def test_steps_left_are_what_is_not_done() -> None:
    assert job(status={"steps_done": 400}).steps_left == 600
    assert "1001 steps are done of 1000" in refusal(status={"steps_done": 1001})


# Gangs


@pytest.mark.parametrize(
    ("gang", "options"),
    [
        ({"accelerators": "H100:8"}, "H100:8"),
        ({"accelerators": "H100"}, "H100:1"),
        ({"accelerators": {"H100": [16, 8], "A100-80GB": 16}}, "A100-80GB:16 H100:8 H100:16"),
        ({"accelerators": ["H100:8", "H100:8", "A100-80GB:16"]}, "A100-80GB:16 H100:8"),
        ({"any_of": [{"accelerators": "H100:8"}, {"accelerators": {"A100-80GB": 16}}]}, "A100-80GB:16 H100:8"),
        ({"options": ["H100:16", "H100:8"]}, "H100:8 H100:16"),
    ],
)
def test_the_ways_to_write_a_gang(gang: dict[str, Any], options: str) -> None:
    assert " ".join(map(str, job(gang=gang).gang.options)) == options


@pytest.mark.parametrize(
    ("gang", "words"),
    [
        ({"accelerators": "H100:8+A100-80GB:8"}, "not supported"),
        ({"accelerators": "H100:8", "mixed": "yes"}, "mixed"),
        ({"accelerators": "H100:0"}, "no number of h100"),
        ({"accelerators": "H100:-8"}, "no number of h100"),
        ({"accelerators": "H100:8.5"}, "no number of h100"),
        ({"accelerators": {"H100": []}}, "no size"),
        ({"accelerators": []}, "no accelerator"),
        ({"accelerators": 8}, "no accelerator"),
        ({}, "no accelerators"),
        ({"accelerators": "H100:8", "any_of": []}, "both given"),
        ({"any_of": [{"accelerators": "H100:8", "region": "us-east-1"}]}, "one alternative"),
        ({"accelerators": "H100:8", "on_demand_share": 1.2}, "on_demand_share"),
        ({"accelerators": "H100:8", "rdma": "maybe"}, "rdma"),
        ({"accelerators": "H100:8", "zones": 2}, "zones"),
        ({"accelerators": "H100:8", "machines": 3}, "unequal"),
        ({"accelerators": {"H100": [8, 12]}, "machines": 8}, "unequal"),
        ({"accelerators": "H100:8", "machines": 0}, "machines"),
    ],
)
def test_gangs_that_are_refused(gang: dict[str, Any], words: str) -> None:
    assert words in refusal(gang=gang)


def test_a_gang_states_its_machines_or_leaves_them_open() -> None:
    plain, stated = job(), job(gang={"accelerators": "H100:16", "machines": 2})
    assert [plain.gang.asks_for(n) for n in (1, 2)] == [True, True]
    assert [stated.gang.asks_for(n) for n in (1, 2)] == [False, True]
    assert plain.digest == job(gang={"accelerators": "H100:8", "machines": None}).digest


# Markets


@pytest.mark.parametrize(
    ("written", "rule"),
    [
        ({"use_spot": True}, "only"),
        ({"use_spot": False}, "never"),
        ({"market": {"use_spot": True}}, "only"),
        ({"market": {"spot": "never"}}, "never"),
        ({"market": {}}, "allowed"),
    ],
)
def test_use_spot_keeps_skypilots_meaning(written: dict[str, Any], rule: str) -> None:
    assert job(**written).market.spot == rule


def test_contradictions_about_spot_are_refused() -> None:
    assert "both given" in refusal(use_spot=True, market={"spot": "only"})
    assert "both given" in refusal(market={"spot": "only", "use_spot": True})
    assert "neither true nor false" in refusal(use_spot="yes")
    assert "contradicts" in refusal(use_spot=True, gang={"accelerators": "H100:8", "on_demand_share": 0.5})


# Work


@pytest.mark.parametrize(
    ("point", "rate"),
    [
        ({"accelerators": "H100:8", "steps_per_hour": 60}, 60.0),
        ({"accelerators": "H100:8", "seconds_per_step": 60}, 60.0),
        ({"accelerator": "H100", "count": 8, "tokens_per_second": 1000, "tokens_per_step": 60_000}, 60.0),
    ],
)
def test_the_ways_to_write_a_speed(point: dict[str, Any], rate: float) -> None:
    found = job(workload={"profile": point}).workload.profile[0]
    assert (found.accelerator, found.count) == ("H100", 8)
    assert found.steps_per_hour == pytest.approx(rate)


def test_a_point_takes_its_tokens_from_the_transformer() -> None:
    point = {"accelerators": "H100:8", "tokens_per_second": 65536}
    work = job(workload={"transformer": SHAPE, "profile": [point]}).workload
    assert work.profile[0].steps_per_hour == pytest.approx(3600)
    assert work.transformer is not None
    assert work.transformer.parameters == 7e9


@pytest.mark.parametrize(
    ("work", "words"),
    [
        ({}, "how fast"),
        ({"profile": []}, "how fast"),
        ({"profile": [{"accelerators": "H100:8"}]}, "no speed"),
        ({"profile": [{"accelerators": "H100:8", "steps_per_hour": 1, "seconds_per_step": 2}]}, "both given"),
        ({"profile": [{"accelerators": "H100:8", "seconds_per_step": 0}]}, "not more than 0"),
        ({"profile": [{"accelerators": "H100:8", "tokens_per_second": 5}]}, "how many tokens"),
        ({"profile": [{"accelerators": "H100", "steps_per_hour": 1}]}, "count"),
        ({"profile": [{"accelerators": "H100:8", "steps_per_hour": 1}] * 2}, "second point"),
        ({"transformer": {**SHAPE, "parameters": 7}}, "too few"),
        ({"transformer": {**SHAPE, "tokens_per_step": 32}}, "tokens, not sequences"),
        ({"transformer": {**SHAPE, "active_parameters": "70B"}}, "more parameters are active"),
        ({"transformer": {**SHAPE, "experts": 4, "experts_per_token": 8}}, "more experts than there are"),
        ({"transformer": {**SHAPE, "precision": "fp64"}}, "precision"),
    ],
)
def test_work_that_is_refused(work: dict[str, Any], words: str) -> None:
    assert words in refusal(workload=work)


# Time


def test_moments_absolute_and_relative() -> None:
    assert job(deadline="2026-11-25T10:00+01:00").deadline == Moment(absolute=datetime(2026, 11, 25, 9, tzinfo=UTC))
    relative = present(job(deadline="+18h").deadline)
    assert relative.at(NOW) == NOW + timedelta(hours=18)


@pytest.mark.parametrize(
    ("deadline", "words"),
    [
        ("2026-11-25T09:00", "no time zone"),
        ("2026-11-25", "no time zone"),
        ("tomorrow", "no point in time"),
        ("18h", "no point in time"),
        (18, "no point in time"),
        ("+18", "no duration"),
    ],
)
def test_deadlines_that_are_refused(deadline: object, words: str) -> None:
    assert words in refusal(deadline=deadline)


@pytest.mark.parametrize(
    ("start", "end"),
    [("+5h", "+5h"), ("+6h", "+5h"), ("2026-11-25T09:00Z", "2026-11-25T09:30+01:00")],
)
def test_a_deadline_before_the_start_is_refused(start: str, end: str) -> None:
    assert "before the earliest start" in refusal(earliest_start=start, deadline=end)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400), ("18h", 64800), ("7d", 604800), ("1h30m", 5400), ("0.5h", 1800), ("45s", 45), ("2w", 1209600)],
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)
    assert parse_duration(format_duration(timedelta(seconds=seconds))) == timedelta(seconds=seconds)


@pytest.mark.parametrize("wrong", [30, 1.5, "30", "h", "1h1h", "30m1h", "-5m", "1 fortnight", "", None, True, "20y"])
def test_durations_without_unit_or_sense_are_refused(wrong: object) -> None:
    assert "startup" in refusal(startup=wrong)


# Sizes, money, places


@pytest.mark.parametrize(
    ("written", "gib"),
    [(40, 40.0), (2.5, 2.5), ("2 TiB", 2048.0), ("500 GB", 500e9 / 2**30), ("40GiB", 40.0)],
)
def test_sizes(written: object, gib: float) -> None:
    assert parse_gib(written) == pytest.approx(gib)


@pytest.mark.parametrize("wrong", ["40", "40 gigs", -1, "forty", True, float("inf")])
def test_sizes_that_are_refused(wrong: object) -> None:
    assert "checkpoint" in refusal(checkpoint={"size_gib": wrong})


@pytest.mark.parametrize(("written", "exact"), [("$210", "210.00"), (210, "210.00"), ("210.50", "210.50")])
def test_money(written: object, exact: str) -> None:
    assert str(job(budget=written).budget) == exact


@pytest.mark.parametrize("wrong", ["-$5", -5, "€210", "1,000", "lots", True, "0.0000000001"])
def test_money_that_is_refused(wrong: object) -> None:
    assert "budget" in refusal(budget=wrong)


def test_checkpoints() -> None:
    assert job(checkpoint="none").checkpoint is None
    auto = job(checkpoint={"size_gib": 40, "interval": "auto"}).checkpoint
    fixed = job(checkpoint={"size_gib": 40, "interval": "30m", "write_gib_per_s": "4 GiB/s"}).checkpoint
    assert auto is not None
    assert fixed is not None
    assert (auto.interval, fixed.interval, fixed.write_gib_per_s) == (None, timedelta(minutes=30), 4.0)
    assert "without end" in refusal(checkpoint={"size_gib": 40, "interval": "0s"})


def test_data_and_its_cap() -> None:
    data = {"uri": "s3://a/b", "at": "aws/us-east-1", "gib": 40}
    found = present(job(data=data | {"egress_cap": "$40"}).data)
    assert found.egress_cap is not None
    assert (found.at, found.egress_cap.usd, found.egress_cap.gib) == (
        RegionId("aws", "us-east-1"),
        Usd.parse(40),
        None,
    )
    assert "no unit" in refusal(data=data | {"egress_cap": 40})
    assert "caps nothing" in refusal(data=data | {"egress_cap": {}})
    assert "not cloud/region" in refusal(data=data | {"at": "us-east-1"})


# Identity


@pytest.mark.parametrize("wrong", ["", "Llama 7B", "a" * 64, "-a", "a_b", 5, None])
def test_names_that_no_machine_could_have(wrong: object) -> None:
    assert "name" in refusal(name=wrong)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("steps", 0),
        ("steps", -5),
        ("steps", 1.5),
        ("steps", "1000"),
        ("steps", True),
        ("confidence", 0.4),
        ("confidence", 1),
        ("priority", 1.5),
        ("team", ""),
        ("labels", {"a": 1}),
        ("step", 5),
        ("run", {"image": "x"}),
    ],
)
def test_fields_out_of_bounds(field: str, wrong: object) -> None:
    assert field in refusal(**{field: wrong})


def test_placements_that_are_refused() -> None:
    assert "placement" in refusal(placement="network")
    assert "placement is by data, and the job has none add `data:`" in refusal(placement="data")
    assert job(placement="none").placement == "none"


def test_the_digest_is_of_meaning_not_of_spelling() -> None:
    one = job(deadline="2026-11-25T09:00Z", startup="90m", gang={"accelerators": {"H100": [8, 16]}})
    two = job(deadline="2026-11-25T10:00+01:00", startup="1h30m", gang={"options": ["H100:16", "H100:8"]})
    assert one.digest == two.digest
    assert one.digest != job(deadline="2026-11-25T09:01Z", startup="90m").digest
    assert len(one.digest) == 64


def test_environment_values_are_in_no_digest_and_no_message() -> None:
    first, second = (job(run={"command": "x", "env": {"KEY": value}}) for value in ("hunter2", "other"))
    renamed = job(run={"command": "x", "env": {"OTHER": "hunter2"}})
    assert first.digest == second.digest != renamed.digest
    assert "hunter2" not in repr(first)
    assert "hunter2" not in refusal(run={"command": "", "env": {"KEY": "hunter2"}})
    assert "hunter2" not in refusal(run={"command": "x", "env": {"KEY": ["hunter2"]}})


def test_references_to_secrets_are_in_the_digest() -> None:
    """A reference is no value: another one sends another secret to the machines."""
    runs = ({"K": "secret:env:A"}, {"K": "secret:env:B"}, {"K": "secret:file:/a"}, {"K": "plain"}, {"K": "other"})
    digests = [job(run={"command": "x", "env": env}).digest for env in runs]
    assert len(set(digests)) == 4
    assert digests[3] == digests[4]
    whole = present(job(run={"command": "x", "env": {"P": "1", "K": "secret:env:A"}}).run)
    assert whole.references == (("K", "secret:env:A"),)


def test_a_job_reads_back_from_its_own_json() -> None:
    whole = job(
        deadline="+18h",
        budget="$210",
        checkpoint={"size_gib": "2 TiB", "interval": "30m"},
        residency={"allow": "EU", "deny": ["DE"]},
        status={"steps_done": 5, "checkpoint_in": "aws/us-east-1", "data_in": "aws/us-east-1"},
        workload={"transformer": SHAPE},
    )
    again = Job.model_validate(whole.model_dump(mode="json"))
    assert again == whole
    assert again.digest == whole.digest


AWS_KEY = "AKIA" + "IOSFODNN7EXAMPLE"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "abc"),
        ("WANDB_API_KEY", "0" * 40),
        ("db_password", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("NOTE", f"key {AWS_KEY}"),
        ("X", "hf_" + "a" * 34),
        ("URL", "postgresql://ana:pw@db/x"),
        ("PEM", "-----BEGIN EC PRIVATE KEY-----\n..."),
    ],
)
def test_what_looks_like_a_secret(name: str, value: str) -> None:
    assert list(find_literal_secrets([("A", "1"), (name, value)])) == [name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "secret:env:STEPFARE_JOB_HF_TOKEN"),
        ("HF_TOKEN", ""),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MAX_TOKENS", "4096"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/key.json"),
        ("URL", "https://example.com/a@b"),
        ("NCCL_DEBUG", "INFO"),
    ],
)
def test_what_looks_like_no_secret(name: str, value: str) -> None:
    assert list(find_literal_secrets([(name, value)])) == []
