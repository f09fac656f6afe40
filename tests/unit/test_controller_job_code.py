"""Where a job's code comes from, what of `run` is refused, and the digest, which jobs without `code` keep."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from router.agent.config import AgentConfig, AgentConfigError, parse_config
from router.config.job_files import load_jobs
from router.jobs.spec import Job
from tests.support.night import FOLDER
from tests.support.repository import ROOT
from tests.support.scenes import NOW

DIGESTS = ROOT / "tests" / "recorded" / "jobs" / "nightly_digests.json"
SHA = "ab" * 32
JOB: dict[str, Any] = {
    "name": "llama-7b",
    "team": "red",
    "steps": 1000,
    "workload": {"profile": [{"accelerator": "H100", "count": 8, "steps_per_hour": 60}]},
    "gang": {"accelerators": "H100:8"},
}
GIT = {"git": "https://git.example.com/team/train.git", "ref": "v1.2"}
ARCHIVE = {"archive": "https://files.example.com/train.tar.gz", "sha256": SHA}


def job(**run: Any) -> Job:
    return Job.model_validate({**copy.deepcopy(JOB), "run": {"command": "python train.py", **run}})


def refusal(**run: Any) -> tuple[str, str]:
    """What is wrong and where, and what to write instead."""
    with pytest.raises(ValidationError) as caught:
        job(**run)
    (error,) = caught.value.errors()
    cause = error["ctx"]["error"]
    return ".".join(map(str, (*error["loc"], *cause.at))) + f": {cause.what}", cause.remedy


def test_jobs_have_the_digests_that_the_first_release_gives_them() -> None:
    """A field that comes later changes none: plans and state databases of that release go on being understood."""
    recorded = json.loads(DIGESTS.read_text(encoding="utf-8"))
    assert {job.name: job.digest for job in load_jobs([FOLDER], NOW).jobs} == recorded
    assert len(recorded) > 20


def test_code_counts_in_the_digest() -> None:
    runs: list[dict[str, Any]] = [
        {}, {"code": GIT}, {"code": {**GIT, "ref": "v1.3"}}, {"code": {**GIT, "git": "https://git.example.com/b.git"}},
        {"code": ARCHIVE}, {"code": {**ARCHIVE, "sha256": "cd" * 32}}, {"workdir": "src"}, {"engine": "ray"},
        {"image": "registry.example.com/a:1"},
    ]  # fmt: skip
    digests = [job(**run).digest for run in runs]
    assert len(set(digests)) == len(digests)
    assert job(code=None).digest == job().digest


@given(st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{0,8}", fullmatch=True), st.text(max_size=8), max_size=4))
def test_values_of_variables_do_not_count_and_their_names_do(env: dict[str, str]) -> None:
    other = {name: f"{value}x" for name, value in env.items()}
    assert job(env=env).digest == job(env=other).digest
    assert job(env={**env, "one_more": ""}).digest != job(env=env).digest
    assert job(env=env, code=GIT).digest == job(env=other, code=GIT).digest


@pytest.mark.parametrize(
    ("run", "what", "remedy"),
    [
        ({"code": {}}, "run.code: needs either git or archive", "git"),
        ({"code": {**GIT, **ARCHIVE}}, "run.code: needs either git or archive", "git"),
        ({"code": {"git": "https://x/a.git"}}, "run.code.ref: git and ref belong together", "ref"),
        ({"code": {**ARCHIVE, "ref": "v1"}}, "run.code.ref: git and ref belong together", "ref"),
        ({"code": {"archive": "https://x/a.tar"}}, "run.code.sha256: archive and sha256 belong", "sha256sum"),
        ({"code": {**GIT, "sha256": SHA}}, "run.code.sha256: archive and sha256 belong", "sha256sum"),
        ({"code": {**ARCHIVE, "sha256": SHA.upper()}}, "run.code.sha256: is no SHA-256", "sha256sum"),
        ({"code": {**ARCHIVE, "archive": "s3://b/a.tar"}}, "run.code.archive: is no https or file URL", "https://"),
        ({"code": {**ARCHIVE, "archive": "train.tar"}}, "run.code.archive: is no https or file URL", "https://"),
        ({"code": {**GIT, "ref": "--upload-pack=x"}}, "run.code.ref: is no commit, tag or branch", "v1.2"),
        ({"code": {**GIT, "ref": "a b"}}, "run.code.ref: is no commit, tag or branch", "v1.2"),
        ({"code": {**GIT, "git": "--exec=x"}}, "run.code.git: is no address", "https://"),
        ({"code": {**GIT, "git": "https://x/a b.git"}}, "run.code.git: is no address", "spaces"),
        ({"code": {**GIT, "git": "git+ssh://u:canary@x/a.git"}}, "run.code.git: holds a password", "run.env"),
        ({"code": {**GIT, "git": "https://u:canary@x/a.git"}}, "run.code.git: holds a password", "run.env"),
        ({"code": GIT, "image": "a:1"}, "run.code: an image brings the code along", "leave out"),
        ({"image": "a:1", "engine": "slurm"}, "run.image: slurm starts processes", "code:"),
        ({"env": {"A=B": "1"}}, "run.env.A=B: 'A=B' is no name of a variable", "NAME: value"),
        ({"env": {"": "1"}}, "run.env.: '' is no name of a variable", "NAME: value"),
        ({"env": {"A B": "1"}}, "run.env.A B: 'A B' is no name of a variable", "NAME: value"),
    ],
)
def test_what_cannot_be_run_is_refused_when_the_job_is_read(run: dict[str, Any], what: str, remedy: str) -> None:
    said, advice = refusal(**run)
    assert said.startswith(what)
    assert remedy in advice
    assert "canary" not in said + advice


@pytest.mark.parametrize(
    "code",
    [
        GIT,
        {**GIT, "git": "git@git.example.com:team/train.git"},
        {**GIT, "git": "ssh://git@git.example.com/a.git"},
        {**GIT, "git": "https://user@git.example.com/a.git"},
        {**GIT, "ref": "feature/x_1.0"},
        {**GIT, "ref": "ab" * 20},
        {**GIT, "git": "file:///srv/a.git"},
        ARCHIVE,
        {**ARCHIVE, "archive": "file:///srv/a.zip"},
        {**ARCHIVE, "archive": "https://u.example.com/a.zip?X-Amz-Signature=abc%3D"},
    ],
)
def test_the_agent_takes_what_the_job_may_say(code: dict[str, str]) -> None:
    made = job(code=code).run
    assert made is not None
    assert made.code is not None
    kind = "git" if made.code.git else "archive"
    source = {"kind": kind, "source": made.code.git or made.code.archive, "version": made.code.ref or made.code.sha256}
    assert parse_config({**AGENT, "code": source}).code.kind == kind


AGENT = {
    "attempt": "a-1", "job": "a", "rank": 0, "nodes": 1, "command": "x", "workdir": "w", "log_folder": "l",
    "spool_folder": "s", "coordinator": "http://127.0.0.1", "token_file": "t",
}  # fmt: skip

ADDRESSES = st.builds(
    "{}{}".format,
    st.sampled_from(
        ["https://", "http://", "file://", "ssh://", "//", "git@", "-", "", "https://u:p@", "git+ssh://u:"]
    ),
    st.text("abz.:@/?#[]-% \n", max_size=12) | st.text(max_size=12),
)


@given(
    st.fixed_dictionaries({"git": ADDRESSES, "ref": st.text(max_size=10) | st.just("main")})
    | st.fixed_dictionaries({"archive": ADDRESSES, "sha256": st.just(SHA)})
)
def test_nothing_that_a_job_may_say_is_refused_only_by_the_agent(code: dict[str, str]) -> None:
    """There it would cost money first."""
    try:
        made = job(code=code).run
    except ValidationError:
        return
    assert made is not None
    assert made.code is not None
    kind = "git" if made.code.git else "archive"
    source = {"kind": kind, "source": made.code.git or made.code.archive, "version": made.code.ref or made.code.sha256}
    try:
        config: AgentConfig = parse_config({**AGENT, "code": source})
    except AgentConfigError as error:
        pytest.fail(f"{code}: {error}")
    assert config.code.kind == kind
