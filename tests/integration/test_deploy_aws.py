"""`stepfare plan` and `apply` on AWS as moto has it: machines made by our module through the stand-in provider,
agents that really run from the user data, a stock-out in the cheapest region, and nothing left at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest

from router.agent.rendezvous import find_free_port
from router.state.store import StateStore
from tests.support.moto_machines import machines
from tests.support.repository import ran
from tests.support.terraform_moto import IMAGE, Cloud, faults
from tests.support.terraform_runs import needs_engine

pytestmark = [needs_engine, pytest.mark.slow]
STEPFARE = Path(sys.executable).with_name("stepfare")
REGIONS = ("us-east-1", "us-east-2", "us-west-2")
JOB = """
name: llama
team: research
cost_center: cc-7
steps: 1000
deadline: +8h
workload:
  profile: [{accelerator: H100, count: 32, seconds_per_step: 10, source: made up}]
gang: {accelerators: "H100:32"}
checkpoint: {size_gib: 10}
residency: {allow: [aws/us-east-1, aws/us-east-2, aws/us-west-2]}
market: {spot: only}
interruptions: {per_hour: 0.001}
run:
  engine: command
  command: echo "rank $NODE_RANK of $NNODES with $HF"; sleep 1
  env: {HF: "secret:env:STEPFARE_JOB_HF_TOKEN"}
"""


@dataclass
class Desk:
    """Where somebody works: a folder with a home, a job, a deploy file that leads to moto."""

    folder: Path
    aws: Cloud

    def run(self, *words: str, orders: Path | None = None) -> subprocess.CompletedProcess[str]:
        given = {} if orders is None else {"STEPFARE_STANDIN_FAULTS": str(orders)}
        environment = {
            **os.environ,
            **self.aws.environment,
            **given,
            "STEPFARE_HOME": str(self.folder / "home"),
            "STEPFARE_CLOUDS": str(self.folder / "none.yaml"),
            "STEPFARE_JOB_HF_TOKEN": "hf_canary_canary_canary",
        }
        return ran([str(STEPFARE), *words], cwd=self.folder, env=environment, timeout=300)

    def status(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run("status", "--all", "-o", "json").stdout)["gangs"]
        return found

    def inventory(self) -> dict[str, dict[str, set[str]]]:
        clients = [
            (r, boto3.client("ec2", r, endpoint_url=self.aws.url, aws_access_key_id="x", aws_secret_access_key="x"))
            for r in REGIONS
        ]
        return {region: Cloud("", self.aws.plugins, {}, ec2).inventory() for region, ec2 in clients}


@pytest.fixture
def desk(aws: Cloud, tmp_path: Path) -> Desk:
    port = find_free_port()
    (tmp_path / "home").mkdir()
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "home" / "deploy.yaml").write_text(
        json.dumps(
            {
                "coordinator": {"listen": f"127.0.0.1:{port}", "url": f"http://127.0.0.1:{port}"},
                "plugin_mirror": str(aws.plugins.mirror),
                "pass_environment": ["PYTHONPATH", "STEPFARE_STANDIN_FAULTS"],
                "timeouts": {"rendezvous": "40s"},
                "clouds": {"aws": {"image": IMAGE}},
            }
        )
    )
    desk = Desk(tmp_path, aws)
    done = desk.run("plan", "job.yaml", "--book", "embedded", "--out", "plan.json")
    assert done.returncode == 0, done.stderr
    return desk


def test_a_gang_of_four_p5_trains_on_ec2_and_leaves_nothing(desk: Desk, tmp_path: Path) -> None:
    before = desk.inventory()
    with machines(desk.aws.url, REGIONS, tmp_path / "machines") as played:
        done = desk.run("apply", "plan.json", "--book", "embedded", "--yes", "--follow", "-o", "json")
    assert done.returncode == 0, done.stderr + done.stdout
    (gang,) = json.loads(done.stdout)["gangs"]
    assert (gang["result"], gang["phase"], gang["machines"]) == ("ready", "finished", 4)
    assert sorted(played.booted.values()) == [0, 1, 2, 3]
    assert desk.inventory() == before
    (attempt,) = desk.status()
    assert {node["machine"] for node in attempt["nodes"]} == set(played.booted)
    assert float(attempt["spent_usd"]) > 0
    entries = json.loads(desk.run("ledger", "list", "--kind", "metered", "--limit", "0", "-o", "json").stdout)[
        "entries"
    ]
    # Machines of a cloud have disks, whose price nobody knows here.
    disks = [entry for entry in entries if entry["what"] == "disk"]
    assert [(entry["rank"], entry["unpriced"]) for entry in disks] == [(rank, True) for rank in range(4)]
    assert desk.run("sweep", "--cloud", "aws").stdout.splitlines()[0] == "no orphans"
    # The secret came to the machines and nowhere else.
    logs = desk.run("logs", "llama").stdout
    assert sorted(line[4:] for line in logs.splitlines()) == [f"rank {rank} of 4 with ***" for rank in range(4)]
    for file in (tmp_path / "home").rglob("*"):
        assert not file.is_file() or b"hf_canary" not in file.read_bytes(), file
    assert "hf_canary" not in done.stderr


@pytest.mark.parametrize("preflight", ["warn", "require"])
def test_unfit_machines_are_said_or_given_back_with_the_reason(desk: Desk, tmp_path: Path, preflight: str) -> None:
    before = desk.inventory()
    file = tmp_path / "home" / "deploy.yaml"
    file.write_text(json.dumps({**json.loads(file.read_text()), "preflight": preflight}))
    seven = ["NVIDIA H100 80GB HBM3, 580.126.16"] * 7
    with machines(desk.aws.url, REGIONS, tmp_path / "machines", gpus=seven):
        done = desk.run("apply", "plan.json", "--book", "embedded", "--yes", "--tries", "1", "--follow")
    (attempt,) = desk.status()
    if preflight == "warn":
        assert done.returncode == 0, done.stderr
        assert all(f"rank {rank}: gpus: 7 of 8 accelerators are there" in done.stderr for rank in range(4))
        assert attempt["state"] == "finished"
    else:
        assert done.returncode == 5, done.stderr
        assert "unfit gpus: 7 of 8 accelerators are there" in done.stderr + done.stdout
        assert (attempt["state"], attempt["reason"]) == ("failed", "unhealthy")
    assert desk.inventory() == before


def test_without_capacity_in_the_cheapest_region_the_next_one_is_taken(desk: Desk, tmp_path: Path) -> None:
    """The third machine is refused; the two that came are released before the next region is asked."""
    before = desk.inventory()
    (line,) = json.loads((tmp_path / "plan.json").read_text())["lines"]
    short = {"call": "RunInstances", "code": "InsufficientInstanceCapacity", "region": line["region"], "after": 2}
    orders = faults(tmp_path / "orders.json", refuse=[short])
    with machines(desk.aws.url, REGIONS, tmp_path / "machines"):
        done = desk.run("apply", "plan.json", "--book", "embedded", "--yes", "--follow", "-o", "json", orders=orders)
    assert done.returncode == 0, done.stderr + done.stdout
    first, second = desk.status()
    assert (first["state"], first["reason"], first["choice"]) == ("failed", "short", 0)
    assert (second["state"], second["choice"]) == ("finished", 1)
    assert line["region"] == first["region"] != second["region"]
    assert desk.inventory() == before
    again = desk.run("plan", "job.yaml", "--book", "embedded", "-o", "json")
    assert "ran short lately" in again.stderr
    assert first["region"] not in {line["region"] for line in json.loads(again.stdout)["lines"]}


def test_credentials_that_are_refused_end_it_at_once(desk: Desk, tmp_path: Path) -> None:
    before = desk.inventory()
    orders = faults(tmp_path / "orders.json", refuse=[{"call": "RunInstances", "code": "UnauthorizedOperation"}])
    done = desk.run("apply", "plan.json", "--book", "embedded", "--yes", orders=orders)
    assert done.returncode == 7, done.stderr
    assert len(desk.status()) == 1
    assert desk.inventory() == before


def test_a_machine_that_never_calls_costs_the_gang_its_place(desk: Desk, tmp_path: Path) -> None:
    before = desk.inventory()
    with machines(desk.aws.url, REGIONS, tmp_path / "machines", sick=frozenset({2})):
        done = desk.run("apply", "plan.json", "--book", "embedded", "--yes", "--tries", "1")
    assert done.returncode == 5, done.stderr
    assert "rank 2 did not call within 40 s" in done.stderr + done.stdout
    (attempt,) = desk.status()
    assert (attempt["state"], attempt["reason"]) == ("failed", "unhealthy")
    assert desk.inventory() == before


def test_sweep_releases_what_is_ours_and_leaves_others_alone(desk: Desk) -> None:
    """Two machines that no attempt stands for: one with the tag of this state, one of another installation."""
    assert desk.run("sweep", "--cloud", "aws").returncode == 0
    state = _state_id(desk)
    made = []
    for owner in (state, "s0123456789"):
        tags = [{"Key": "stepfare_attempt", "Value": "gone-1"}, {"Key": "stepfare_state", "Value": owner}]
        run = desk.aws.ec2.run_instances(
            ImageId=IMAGE,
            MinCount=1,
            MaxCount=1,
            InstanceType="p5.48xlarge",
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
        made.append(run["Instances"][0]["InstanceId"])
    shown = desk.run("sweep", "--cloud", "aws")
    assert all(name in shown.stdout for name in made)
    done = desk.run("sweep", "--cloud", "aws", "--yes")
    assert done.returncode == 0, done.stderr + done.stdout
    states = {
        i["InstanceId"]: i["State"]["Name"]
        for page in desk.aws.ec2.describe_instances(InstanceIds=made)["Reservations"]
        for i in page["Instances"]
    }
    assert states == {made[0]: "terminated", made[1]: "running"}
    desk.aws.ec2.terminate_instances(InstanceIds=[made[1]])


def _state_id(desk: Desk) -> str:
    with StateStore.open(f"sqlite:///{desk.folder / 'home' / 'state.db'}", now=datetime.now(UTC)) as store:
        return store.id
