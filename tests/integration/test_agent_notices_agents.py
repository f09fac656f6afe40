"""The packed agent beside each metadata service and the real coordinator; and the clouds' own clients against ours."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.utils import IMDSFetcher, InstanceMetadataFetcher, InstanceMetadataRegionFetcher

from tests.support.agents import agents
from tests.support.coordinations import scene
from tests.support.coordinator import Coordinator
from tests.support.gpu_readings import A100, KERNEL_LOG
from tests.support.metadata_service import SPOT, Machine, MetadataService
from tests.support.repository import ROOT

TOKEN = "token-canary-51ad"
ANNOUNCE: dict[str, Callable[[Machine], None]] = {
    "aws": Machine.interrupt,
    "gcp": Machine.preempt,
    "azure": Machine.event,
}


@pytest.fixture
def service() -> Iterator[MetadataService]:
    with MetadataService().running() as running:
        yield running


@pytest.mark.parametrize("dialect", ANNOUNCE)
def test_an_announcement_reaches_the_state(tmp_path: Path, service: MetadataService, dialect: str) -> None:
    poll: dict[str, Any] = {"metadata": dialect, "metadata_url": service.url, "notice_poll_seconds": 0.1}
    with (
        scene(tmp_path, 1) as gang,
        gang.serving(),
        agents(tmp_path / "a", gang.told, "exec sleep 60", **poll) as (rank,),
    ):
        gang.wait(lambda g: g.records[0].agent == "running")
        ANNOUNCE[dialect](service.machine)
        gang.wait(lambda g: bool(g.store.notices.find()))
        (notice,) = gang.store.notices.find()
        assert service.machine.acknowledged == []
        rank.process.terminate()
        rank.end()
    assert (notice.attempt, notice.rank, notice.kind, notice.source) == ("attempt-1", 0, "interruption", dialect)
    assert notice.seconds is not None
    assert 20.0 < notice.seconds <= 120.0
    assert f"notice {notice.id} (interruption, {dialect}, " in rank.log("agent.log")


def test_a_file_beside_the_spool_announces_on_the_sandbox(tmp_path: Path) -> None:
    with (
        scene(tmp_path, 2) as gang,
        gang.serving(),
        agents(tmp_path / "a", gang.told, "exec sleep 60", metadata="files") as ranks,
    ):
        gang.wait(lambda g: all(node.agent == "running" for node in g.records))
        new = ranks[1].folder / "new"
        new.write_text(json.dumps({"kind": "interruption", "seconds": 20, "id": "drill-1", "what": "drill"}))
        new.rename(ranks[1].folder / "notice.json")
        gang.wait(lambda g: bool(g.store.notices.find()))
        (notice,) = gang.store.notices.find()
        assert (notice.rank, notice.id, notice.source, notice.what) == (1, "drill-1", "sandbox", "drill")
        assert all(rank.process.poll() is None for rank in ranks)


@pytest.mark.slow
def test_one_that_is_heard_while_the_coordinator_is_away_comes_before_all_else(
    tmp_path: Path, service: MetadataService
) -> None:
    poll: dict[str, Any] = {"metadata": "azure", "metadata_url": service.url, "notice_poll_seconds": 0.05}
    with (
        Coordinator(1, TOKEN).running() as coordinator,
        agents(tmp_path / "a", coordinator, "echo much; sleep 2; echo more", **poll) as (rank,),
    ):
        coordinator.wait_state("running")
        with coordinator.away():
            service.machine.event("e-1")
            while not list((rank.folder / "spool" / "notices").glob("*.json")):
                time.sleep(0.02)
            while "ended: finished" not in rank.log("agent.log"):
                time.sleep(0.02)
        assert rank.end() == 0
    said = [heard.what for heard in coordinator.heard]
    assert said.index("notice") < said.index("ended") == len(said) - 1
    assert coordinator.messages("notice")[0]["seconds"] < 29.0
    assert coordinator.problems == []


def test_a_machine_without_its_metadata_service_works(tmp_path: Path) -> None:
    poll: dict[str, Any] = {"metadata": "aws", "metadata_url": "http://127.0.0.1:1"}
    with (
        Coordinator(1, TOKEN).running() as coordinator,
        agents(tmp_path / "a", coordinator, "sleep 2", **poll) as (rank,),
    ):
        assert rank.end() == 0
    assert rank.log("agent.log").count("the metadata service: NoticeSourceError") == 1


def test_gpus_that_are_not_well(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    broken = A100.replace("<dram_uncorrectable>0", "<dram_uncorrectable>4")
    for name, text in {"nvidia-smi": broken, "dmesg": KERNEL_LOG}.items():
        (tools / f"{name}.txt").write_text(text)
        (tools / name).write_text(f"#!/bin/sh\nexec cat {tools}/{name}.txt\n")
        (tools / name).chmod(0o755)
    with (
        Coordinator(1, TOKEN).running() as coordinator,
        agents(tmp_path / "a", coordinator, "exec sleep 60", path=str(tools)),
    ):
        coordinator.wait(lambda c: len(c.messages("notice")) == 5)
    said = coordinator.messages("notice")
    assert {(body["kind"], body["source"], body["seconds"]) for body in said} == {("health", "gpu", None)}
    assert sorted(body["id"].split("-")[1] for body in said) == ["ecc", "sxid", "xid", "xid", "xid"]


def test_only_the_dialect_that_is_spoken_is_loaded(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, {root!r})\n"
        "from router.agent.config import AgentConfig\nfrom router.agent.notice_listener import watches_of\n"
        "config = AgentConfig('a', 'j', 0, 1, 'c', 'w', 'http://127.0.0.1:1', 't', 'l', 's', metadata='gcp')\n"
        "assert len(watches_of(config)) == 2\n"
        "print(*sorted(name for name in sys.modules if 'imds_' in name or name.startswith('xml')))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", program.format(root=str(ROOT))], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["router.agent.imds_gcp"]


def test_botocore_reads_our_service_as_it_reads_ec2s(service: MetadataService) -> None:
    """Its own fetchers: token first, then credentials, region, and the path that we poll."""
    root = f"{service.url}/"
    credentials = InstanceMetadataFetcher(base_url=root, num_attempts=1, env={}).retrieve_iam_role_credentials()
    assert (credentials["role_name"], credentials["access_key"]) == ("gang-role", "ASIA-1")
    assert InstanceMetadataRegionFetcher(base_url=root, num_attempts=1, env={}).retrieve_region() == "us-east-1"
    fetcher: Any = IMDSFetcher(base_url=root, num_attempts=1, env={})
    token = fetcher._fetch_metadata_token()
    path = f"latest/meta-data/{SPOT}"

    def get(token: str | None) -> Any:
        return fetcher._get_request(path, lambda response: False, token=token)

    assert get(token).status_code == 404
    service.machine.interrupt()
    assert json.loads(get(token).text)["action"] == "terminate"
    assert get("wrong").status_code == 401
    assert get(None).status_code == 401


def test_google_auth_reads_our_service_as_it_reads_compute_engines(service: MetadataService) -> None:
    from google.auth.compute_engine import _metadata
    from google.auth.transport.requests import Request

    client: Any = _metadata
    root = f"{service.url}/computeMetadata/v1/"
    assert client.get(Request(), "instance/preempted", root=root, retry_count=1) == "FALSE"
    service.machine.preempt()
    params = {"wait_for_change": "true", "last_etag": "1", "timeout_sec": "5"}
    assert client.get(Request(), "instance/preempted", root=root, params=params, retry_count=1) == "TRUE"
