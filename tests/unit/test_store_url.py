"""Where checkpoints are kept, as the deploy file says it, and how trainings hear it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from pricing.problems import InvalidInputError
from router.agent.config import AgentConfig
from router.agent.starters import gang_environment
from router.config.settings_files import load_deploy
from router.controller.workspace.bootstrap import CoordinatorEndpoint
from router.controller.workspace.workspaces import _config
from router.deploy.cloud_settings import CloudDeploy, join_store_url, validate_store_url
from router.deploy.deploy_settings import Deploy
from router.jobs.fields import RefusedError
from tests.support.scenes import a_job
from tests.support.state_values import attempt, node

CANARY = "canary-51c0aa"


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket",
        "s3://bucket/a/b",
        "s3://bucket/a?region=eu-1&endpoint_override=minio:9000&scheme=http",
        "gs://bucket/a",
        "abfs://container@account.dfs.core.windows.net/a",
        "abfss://container/a",
        "file:///srv/a",
    ],
)
def test_places_for_checkpoints(url: str) -> None:
    assert validate_store_url(url) == url
    path, mark, query = url.partition("?")
    assert validate_store_url(f"{path}/{mark}{query}") == url
    assert join_store_url(url, "run-7") == f"{path}/run-7{mark}{query}"


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("/srv/a", "no place"),
        ("https://bucket.s3.amazonaws.com", "no place"),
        ("bucket", "no place"),
        ("s3:///a", "no bucket"),
        ("gs://", "no bucket"),
        ("file://host/a", "no folder"),
        ("file:///", "no folder"),
        (f"s3://key:{CANARY}@bucket/a", "credentials"),
        (f"s3://{CANARY}@bucket/a", "credentials"),
        (f"abfs://container:{CANARY}@account/a", "credentials"),
        (f"s3://b?secret_key={CANARY}", "more than a place"),
        (f"gs://b/a?token={CANARY}", "more than a place"),
        ("s3://b/a#x", "more than a place"),
        ("s3://[b", "no URL"),
    ],
)
def test_what_is_none(url: str, what: str) -> None:
    with pytest.raises(RefusedError, match=what) as caught:
        validate_store_url(url)
    assert CANARY not in str(caught.value)


def test_it_is_refused_where_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("deploy.yaml").write_text(f"clouds: {{aws: {{regions: {{r: {{checkpoint_url: 's3://u:{CANARY}@b'}}}}}}}}")
    with pytest.raises(InvalidInputError, match="credentials") as caught:
        load_deploy(Path("deploy.yaml"), named=True)
    (problem,) = caught.value.problems
    assert problem.field == "clouds.aws.regions.r.checkpoint_url"
    assert CANARY not in str(caught.value)


def test_a_region_says_it_before_its_cloud_and_every_rank_hears_it() -> None:
    deploy = Deploy.model_validate(
        {"clouds": {"aws": {"checkpoint_url": "s3://all/x/", "regions": {"r1": {"checkpoint_url": "gs://near"}}}}}
    )
    assert [deploy.cloud("aws", region).store_of("j") for region in ("r1", "r2")] == ["gs://near/j", "s3://all/x/j"]
    assert CloudDeploy().store_of("j") is None
    run = a_job(run={"engine": "command", "command": "true"}).run
    assert run is not None
    home, one = CoordinatorEndpoint("http://127.0.0.1:1", "0" * 64), attempt(job="llama", region="r1")

    def told(deploy: Deploy, rank: int) -> AgentConfig:
        return _config(one, node(rank=rank), run, deploy, home)

    stores = [gang_environment(told(deploy, rank)).get("STEPFARE_CHECKPOINT_STORE") for rank in (0, 1)]
    assert stores == ["gs://near/llama"] * 2
    assert "STEPFARE_CHECKPOINT_STORE" not in gang_environment(told(Deploy(), 0))
    # Machines of a gang that takes over wait for the checkpoint, too.
    timeouts = Deploy().timeouts
    assert told(deploy, 0).gang_seconds - told(Deploy(), 0).gang_seconds == timeouts.checkpoint_copy / timedelta(
        seconds=1
    )
