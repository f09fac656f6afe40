"""`stepfare plan` and `apply` on a host of one's own, over SSH to a host on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from router.agent.rendezvous import find_free_port
from tests.support.repository import ran
from tests.support.terraform_hosts import ssh_host
from tests.support.terraform_runs import needs_engine

pytestmark = [needs_engine, pytest.mark.slow]
STEPFARE = Path(sys.executable).with_name("stepfare")
POOL = """
sites: [{name: hall, country: DE, continent: EU, geo: EU, residency_group: EU, city: Frankfurt}]
machines:
  - {type: dgx-h100, accelerator: H100, accelerators: 8, fabric: infiniband, intra_node_interconnect: nvlink-switch}
hosts: [{name: dgx, site: hall, machine: dgx-h100, count: 1, addresses: [127.0.0.1], usd_per_hour: 11.6}]
"""
JOB = """
name: {name}
team: research
steps: 100
deadline: +8h
workload: {{profile: [{{accelerator: H100, count: 8, seconds_per_step: 1, source: made up}}]}}
gang: {{accelerators: "H100:8"}}
residency: {{allow: [static/hall]}}
run: {{engine: command, command: "{command}"}}
"""


def test_a_job_on_a_host_that_is_there(tmp_path: Path) -> None:
    """Started over SSH, heard, released; a second gang does not get the host that is taken; afterwards it does."""
    with ssh_host(tmp_path / "dgx") as host:
        port = find_free_port()
        (tmp_path / "pool.yaml").write_text(POOL)
        (tmp_path / "clouds.yaml").write_text("clouds: {static: {file: pool.yaml}}")
        entry = {name: host.described[name] for name in ("port", "user", "host_key")}
        static = {"private_key_path": host.key, "hosts": {"127.0.0.1": entry}}
        (tmp_path / "deploy.yaml").write_text(
            json.dumps(
                {
                    "coordinator": {"listen": f"127.0.0.1:{port}", "url": f"http://127.0.0.1:{port}"},
                    "clouds": {"static": static},
                }
            )
        )
        (tmp_path / "one.yaml").write_text(JOB.format(name="one", command="echo here on $NNODES; sleep 300"))
        (tmp_path / "two.yaml").write_text(JOB.format(name="two", command="echo and here"))

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            environment = {
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "STEPFARE_HOME": str(tmp_path / "state"),
                "STEPFARE_CLOUDS": str(tmp_path / "clouds.yaml"),
                "STEPFARE_DEPLOY": str(tmp_path / "deploy.yaml"),
            }
            return ran([str(STEPFARE), *words], cwd=tmp_path, env=environment, timeout=120)

        assert run("prices", "refresh", "--cloud", "static").returncode == 0
        for name in ("one", "two"):
            made = run("plan", f"{name}.yaml", "--out", f"{name}.json")
            assert made.returncode == 0, made.stderr + made.stdout

        # It ends when the rank has begun, so that nothing is printed into the void.
        first = run("apply", "one.json", "--yes")
        assert first.returncode == 0, first.stderr + first.stdout
        second = run("apply", "two.json", "--yes")
        assert second.returncode == 5
        assert "too few free dgx-h100" in second.stdout

        assert run("destroy", "one", "--yes").returncode == 0
        assert "here on 1" in run("logs", "one").stdout
        third = run("apply", "two.json", "--yes", "--follow")
        assert third.returncode == 0, third.stderr + third.stdout
        assert "and here" in run("logs", "two").stdout
        assert not list((tmp_path / "dgx").rglob("token")), "a token is left on the host"
