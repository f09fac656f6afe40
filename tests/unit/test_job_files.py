"""Job files: every bad line is refused with file, line, column, field, reason and remedy; all of them at once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pricing.book_file import embedded_book
from pricing.problems import InvalidInputError, Problem
from router.config.book_check import check_against_book
from router.config.job_files import LoadedJobs, load_jobs

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
LINES = {
    "name": "name: llama-7b",
    "team": "team: research",
    "steps": "steps: 1000",
    "deadline": "deadline: +18h",
    "workload": "workload: {profile: [{accelerator: H100, count: 8, steps_per_hour: 900}]}",
    "gang": "gang: {accelerators: H100:8}",
}


def job(**changed: str) -> str:
    """A job of one line a field; a changed field is given as its whole text, an empty one is left out."""
    lines = {**LINES, **changed}
    return "\n".join(line for line in lines.values() if line) + "\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(text: str, file: str = "job.yaml") -> LoadedJobs:
    Path(file).write_text(text, encoding="utf-8")
    return load_jobs([file], NOW)


def refused(text: str, *, book: bool = False) -> list[Problem]:
    def read() -> None:
        loaded = load(text)
        if book:
            check_against_book(loaded, embedded_book())

    with pytest.raises(InvalidInputError) as caught:
        read()
    return list(caught.value.problems)


# What is written, then place, dotted field, a part of the reason, a part of the remedy.
BAD = {
    "unknown field": ({"deadline": "deadlin: +18h"}, "4:1", "deadlin", "no field of a job", "did you mean deadline?"),
    "unknown field, nothing near": (
        {"deadline": "zzzz: 1"}, "4:1", "zzzz", "no field of a job", "stepfare schema job",
    ),
    "unknown field inside": (
        {"gang": "gang:\n  accelerators: H100:8\n  samezone: true"},
        "8:3", "gang.samezone", "gang has no such field", "did you mean same_zone?",
    ),
    "another word for a field": (
        {"gang": "gang: {acelerators: H100:8}"},
        "6:8", "gang.acelerators", "gang has no such field", "did you mean accelerators?",
    ),
    "unknown word": (
        {"market": "market: {spot: allow}"}, "7:16", "market.spot", "'allow' is not one of", "did you mean allowed?",
    ),
    "duration without unit": (
        {"startup": "startup: 600"}, "7:10", "startup", "600 has no unit of time", "600s",
    ),
    "size with a wrong unit": (
        {"checkpoint": "checkpoint: {size_gib: 80 gigs}"}, "7:24", "checkpoint.size_gib", "'gigs' is no unit", "GB",
    ),
    "parameters in billions": (
        {"workload": "workload: {transformer: {parameters: 7, layers: 32, hidden: 4096, sequence_length: 4096, "
                     "tokens_per_step: 4194304}}"},
        "5:38", "workload.transformer.parameters", "7 parameters are too few", "7e9",
    ),
    "experts of a token without experts": (
        {"workload": "workload: {transformer: {parameters: 47B, active_parameters: 13B, layers: 32, hidden: 4096, "
                     "sequence_length: 4096, tokens_per_step: 4194304, experts_per_token: 2}}"},
        "5:161", "workload.transformer.experts_per_token", "how many experts a layer has", "add `experts:`",
    ),
    "negative money": ({"budget": "budget: $-5"}, "7:9", "budget", "", ""),
    "a cap of nothing": ({"budget": "max_price: 0"}, "7:12", "max_price", "no machine costs nothing", "e.g. 2.50"),
    "a cap below zero": ({"budget": "max_price: -2.50"}, "7:12", "max_price", "-2.5 is negative", "US dollars"),
    "a cap in words": ({"budget": "max_price: cheap"}, "7:12", "max_price", "'cheap' is no amount of dollars", "1200"),
    "no zone in a date": (
        {"deadline": "deadline: 2026-11-25T09:00"}, "4:11", "deadline", "no time zone", "2026-11-25T09:00Z",
    ),
    "a day alone": ({"deadline": "deadline: 2026-11-25"}, "4:11", "deadline", "no time zone", "2026-11-25T00:00Z"),
    "past deadline": (
        {"deadline": "deadline: 2026-11-20T18:00Z"}, "4:11", "deadline",
        "has passed: 2026-11-20T18:00Z is 1d before now, 2026-11-21T18:00Z", "later",
    ),
    "late without a deadline": (
        {"deadline": "", "late": "late: allowed"}, "6:7", "late", "no deadline is given", "add `deadline:`",
    ),
    "late in another word": ({"late": "late: maybe"}, "7:7", "late", "'maybe' is not one of never, allowed", ""),
    "deadline before earliest start": (
        {"deadline": "deadline: +18h", "earliest_start": "earliest_start: 2026-11-23T00:00Z"},
        "4:11", "deadline", "before the earliest start", "later",
    ),
    "a deadline at the end of the calendar": (
        {"deadline": "deadline: 9999-12-31T00:00Z"}, "4:11", "deadline", "outside the years 1970 to 2999", "leave",
    ),
    "a deadline of a hundred years": (
        {"deadline": "deadline: 2126-11-21T18:00Z"}, "4:11", "deadline", "2126-11-21T18:00Z is more than 366 days away",
        "earlier",
    ),
    "a deadline of two years": ({"deadline": "deadline: +731d"}, "4:11", "deadline", "more than 366 days", "earlier"),
    "a start of two years": (
        {"deadline": "", "earliest_start": "earliest_start: +731d"}, "6:17", "earliest_start", "more than 366 days",
        "earlier",
    ),
    "a wait of two years": ({"deadline": "", "max_wait": "max_wait: 731d"}, "6:11", "max_wait", "731d is more", "366d"),
    "zero steps": ({"steps": "steps: 0"}, "3:8", "steps", "must be more than 0, not 0", ""),
    "half a step": ({"steps": "steps: 2.5"}, "3:8", "steps", "2.5 is not a whole number", ""),
    "text for steps": ({"steps": "steps: many"}, "3:8", "steps", "'many' is not a number", ""),
    "more done than there are": (
        {"status": "status: {steps_done: 1001}"}, "7:22", "status.steps_done", "1001 steps are done of 1000", "total",
    ),
    "missing field": ({"team": ""}, "1:1", "team", "is missing", "team:"),
    "a number for a team": ({"team": "team: 7"}, "2:7", "team", "7 is not text", "quotes"),
    "a name that no machine can have": ({"name": "name: Llama 7B"}, "1:7", "name", "is no name", "llama-7b"),
    "no mapping": ({"gang": "gang: H100:8"}, "6:7", "gang", "is not a mapping of fields", ""),
    "confidence of one": ({"confidence": "confidence: 1"}, "7:13", "confidence", "must be at most 0.999, not 1", ""),
    "mixed gang": ({"gang": "gang: {accelerators: H100:8+A100-80GB:8}"}, "6:22", "gang.accelerators",
                   "not supported", "mixed: true"),
    "mixed gang by a number": ({"gang": "gang: {accelerators: H100:8, mixed: 1}"}, "6:37", "gang.mixed",
                               "neither true nor false", "write true or false"),
    "mixed with itself": (
        {"status": "status: {running: {cloud: aws, region: us-east-1, instance_type: p4d.24xlarge, market: spot, "
                   "accelerators: 16, mixed_with: {instance_type: p4d.24xlarge, accelerators: 8}}}"},
        "7:140", "status.running.mixed_with.instance_type", "is the type that it is mixed with", "name the other type",
    ),
    "mixed with all of it": (
        {"status": "status: {running: {cloud: aws, region: us-east-1, instance_type: p4d.24xlarge, market: spot, "
                   "accelerators: 16, mixed_with: {instance_type: p4de.24xlarge, accelerators: 16}}}"},
        "7:169", "status.running.mixed_with.accelerators", "leave none of p4d.24xlarge", "counts those of both types",
    ),
    "a size in a list": ({"gang": "gang:\n  accelerators: {H100: [4, 0]}"}, "7:28", "gang.accelerators.H100[1]",
                         "0 is no number of H100", "1 or more"),
    "not filled in": ({"steps": "steps: {FILL IN: how many steps there are}"}, "3:8", "steps",
                      "still to be filled in", "how many steps there are"),
    "not filled in, deep": (
        {"workload": "workload: {profile: [{accelerators: H100:8, seconds_per_step: {FILL IN: measured}}]}"},
        "5:63", "workload.profile[0].seconds_per_step", "still to be filled in", "measured",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_line_is_refused_with_place_field_reason_and_remedy(folder: Path, case: str) -> None:
    changed, place, field, what, remedy = BAD[case]
    (problem,) = refused(job(**changed))
    assert (problem.where, problem.field) == (f"job.yaml:{place}", field)
    assert what in problem.what
    assert remedy in problem.remedy


BAD_NAMES = {
    "accelerator": ({"gang": "gang: {accelerators: H10O:8}"}, "6:22", "gang.accelerators", "H10O", "H100"),
    "accelerator in a list of sizes": (
        {"gang": "gang: {accelerators: {h100: [8, 16]}}"}, "6:30", "gang.accelerators.h100[0]", "h100", "H100",
    ),
    "accelerator of a profile": (
        {"workload": "workload: {profile: [{accelerator: A100-80G, count: 8, steps_per_hour: 9}]}"},
        "5:36", "workload.profile[0].accelerator", "A100-80G", "did you mean A100-80GB?",
    ),
    "gang size": (
        {"gang": "gang: {any_of: [{accelerators: H100:8}, {accelerators: GB200:6}]}"},
        "6:56", "gang.any_of[1].accelerators", "nobody sells GB200:6: machines have 4 GB200", "GB200:8",
    ),
    "machines of a gang": (
        {"gang": "gang: {accelerators: GB200:8, machines: 1}"},
        "6:41", "gang.machines", "nobody sells GB200:8 as 1 machine: they have 4 GB200", "leave it out",
    ),
    "region": (
        {"data": "data: {uri: s3://a/b, at: aws/us-eats-1, gib: 5}"},
        "7:27", "data.at", "knows no region aws/us-eats-1", "did you mean aws/us-east-1?",
    ),
    "cloud": (
        {"data": "data: {uri: s3://a/b, at: awz/us-east-1, gib: 5}"}, "7:27", "data.at", "'awz'", "did you mean aws?",
    ),
    "residency": (
        {"residency": "residency: {allow: [EU, DEU], deny: [aws/us-east-11]}"},
        "7:25", "residency.allow[1]", "'DEU'", "",
    ),
    "running machine": (
        {"status": "status: {running: {cloud: aws, region: us-east-1, instance_type: p5.48xlrge, market: spot, "
                   "accelerators: 8}}"},
        "7:66", "status.running.instance_type", "p5.48xlrge", "did you mean p5.48xlarge?",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_NAMES)
def test_names_that_the_book_does_not_know_are_refused(folder: Path, case: str) -> None:
    changed, place, field, what, remedy = BAD_NAMES[case]
    problem = refused(job(**changed), book=True)[0]
    assert (problem.where, problem.field) == (f"job.yaml:{place}", field)
    assert what in problem.what
    assert remedy in problem.remedy


def test_known_names_pass(folder: Path) -> None:
    data = "data: {uri: s3://a/b, at: aws/us-east-1, gib: 5}"
    gang = "gang: {accelerators: {H100: [8, 16], A100-80GB: 24}}"
    residency = "residency: {allow: [EU, DE, aws, us-east-1, gcp/us-central1], deny: [UK]}"
    check_against_book(load(job(data=data, gang=gang, residency=residency)), embedded_book())


def test_everything_wrong_is_said_at_once_over_all_files(folder: Path) -> None:
    Path("a.yaml").write_text(job(steps="steps: 0", team="") + "---\n" + job(name="name: B"), encoding="utf-8")
    Path("b.yaml").write_text("a: [", encoding="utf-8")
    Path("c.yaml").write_text(job(name="name: good", deadline="deadline: 2020-01-01T00:00Z"), encoding="utf-8")
    with pytest.raises(InvalidInputError) as caught:
        load_jobs(["."], NOW)
    assert {(p.where.split(":")[0], p.field) for p in caught.value.problems} == {
        ("a.yaml", "steps"),
        ("a.yaml", "team"),
        ("a.yaml", "name"),
        ("b.yaml", ""),
        ("c.yaml", "deadline"),
    }


def test_two_jobs_of_one_name_name_both_places(folder: Path) -> None:
    Path("a.yaml").write_text(job() + "---\n" + job(name="name: other"), encoding="utf-8")
    Path("b.yaml").write_text("# remark\n" + job(), encoding="utf-8")
    with pytest.raises(InvalidInputError) as caught:
        load_jobs(["a.yaml", "b.yaml"], NOW)
    (problem,) = caught.value.problems
    assert (problem.where, problem.field) == ("b.yaml:2:7", "name")
    assert "another job, at a.yaml:1:7" in problem.what


def test_values_of_the_environment_never_appear(folder: Path) -> None:
    secret = "sw0rdfish"
    for env in (f"{{TOKEN: [{secret}]}}", f"[{secret}]", f"{{TOKEN: {secret}, TOKEN: 1}}", "{TOKEN: 123454321}"):
        problems = refused(job(run=f"run: {{command: x, env: {env}}}"))
        assert problems
        assert not any(value in str(p) for p in problems for value in (secret, "123454321"))


def test_folders_are_searched_to_the_bottom_and_limits_left_out(folder: Path) -> None:
    for place in ("jobs/b.yml", "jobs/deep/er/a.yaml", "jobs/.hidden/x.yaml", "jobs/.y.yaml"):
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        Path(place).write_text(job(name=f"name: {Path(place).stem.strip('.')}"), encoding="utf-8")
    Path("jobs/limits.yaml").write_text("clouds: [aws]", encoding="utf-8")
    Path("jobs/README.md").write_text("no job", encoding="utf-8")
    assert [j.name for j in load_jobs(["jobs"], NOW).jobs] == ["b", "a"]
    assert [j.name for j in load_jobs(["jobs/**/*.yaml"], NOW).jobs] == ["a"]
    assert [j.name for j in load_jobs([Path("jobs"), "jobs/b.yml", folder / "jobs"], NOW).jobs] == ["b", "a"]
    assert [j.name for j in load_jobs(["jobs/*.y*ml"], NOW).jobs] == ["b"]


def test_places_are_kept_beside_the_jobs(folder: Path) -> None:
    loaded = load(job() + "---\n" + job(name="name: second"))
    assert loaded.where("second", ("gang", "accelerators")) == "job.yaml:13:22"
    with pytest.raises(KeyError):
        loaded.where("third")


@pytest.mark.parametrize(
    ("path", "what", "remedy"),
    [
        ("empty", "holds no .yaml or .yml file", "job files"),
        ("missing.yaml", "no such file or folder", "path"),
        ("jobs-*.yaml", "matches no file", "pattern"),
        ("blank.yaml", "holds no job", "schema"),
        ("limits.yaml", "is a limits file", "--limits"),
        ("mine.yaml", "looks like a limits file", "--limits"),
        ("sky.yaml", "looks like a SkyPilot task", "stepfare import sky sky.yaml"),
        ("list.yaml", "a job is a mapping of fields, not a list", "---"),
        ("text.yaml", "a job is a mapping of fields", "---"),
    ],
)
def test_paths_that_lead_to_no_job_say_what_to_do(folder: Path, path: str, what: str, remedy: str) -> None:
    Path("empty").mkdir()
    for name, text in {
        "blank.yaml": "# nothing yet\n",
        "limits.yaml": "clouds: [aws]",
        "mine.yaml": "limits: []\nteams: []",
        "sky.yaml": "resources: {accelerators: H100:8}\nrun: python train.py",
        "list.yaml": "- name: a",
        "text.yaml": "just text",
    }.items():
        Path(name).write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInputError) as caught:
        load_jobs([path], NOW)
    (problem,) = caught.value.problems
    assert problem.where.split(":")[0] == path
    assert what in problem.what
    assert remedy in problem.remedy


def test_no_path_at_all_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no path is given"):
        load_jobs([], NOW)


def test_a_bomb_and_ten_megabytes_are_refused(folder: Path) -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(f"{c}: &{c} [{', '.join([f'*{chr(ord(c) - 1)}'] * 9)}]\n" for c in "bcdefghi")
    assert "aliases expanded" in refused(bomb)[0].what
    assert "larger than 2 MB" in refused("# " + "x" * 10_000_000)[0].what
