"""The module for hosts that are there already, over SSH to a host on this machine: start, change, stop, failures."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pricing.places import Market
from terraform.render import parse_nodes
from terraform.spec import Host as PoolHost
from terraform.spec import NodeSpec, WorkspaceSpec
from terraform.workdir import prepare
from tests.support import terraform_runs
from tests.support.busy import eventually
from tests.support.terraform_hosts import Host, ssh_host
from tests.support.terraform_plans import variables
from tests.support.terraform_standin import Engine, Finished

WORKS = '#!/bin/sh\necho "$STEPFARE_ATTEMPT/$STEPFARE_RANK" >said\nsleep 600 &\necho $! >child\nwait\n'


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with ssh_host(tmp_path_factory.mktemp("pool") / "home") as found:
        yield found


def _given(host: Host, attempt: str, texts: dict[str, str], **other: object) -> dict[str, object]:
    nodes = [
        {"rank": int(r), "name": f"n{r}", "instance_type": "dgx", "market": "reserved"} for r in sorted(texts, key=int)
    ]
    hosts = {rank: host.entry(**other) for rank in texts}
    settings = variables(nodes, region="hall", hosts=hosts, private_key_path=host.key)
    return {**settings, "attempt": attempt, "user_data": texts}


def _apply(engine: Engine, root: Path, given: dict[str, object]) -> Finished:
    (root / "terraform.tfvars.json").write_text(json.dumps(given))
    return engine.run(root, "apply", "-auto-approve", "-input=false", "-no-color")


def _awaited(file: Path) -> str:
    eventually(lambda: file.exists() and file.read_text().endswith("\n"), why=f"for {file}")
    return file.read_text().strip()


@pytest.mark.slow
def test_scripts_start_and_stop_with_the_gang(engine: Engine, host: Host, tmp_path: Path) -> None:
    given = _given(host, "a1", {"0": WORKS, "1": "echo plain >said\n", "2": ""}, private_address="10.0.0.7")
    root = engine.root(tmp_path / "root", "static", given)
    done = _apply(engine, root, given)
    assert done.code == 0, done.out + done.err
    place = host.home / ".stepfare" / "a1"
    assert _awaited(place / "0" / "said") == "a1/0"
    assert _awaited(place / "1" / "said") == "plain"
    assert _awaited(place / "1" / "code") == "0"
    assert not (place / "2" / "script").exists()
    assert (place / "0" / "script").stat().st_mode & 0o077 == 0
    child = _awaited(place / "0" / "child")
    assert terraform_runs.lives(int(child))

    nodes: list[dict[str, Any]] = json.loads(engine.must(root, "output", "-json").out)["nodes"]["value"]
    assert [(n["rank"], n["address"], n["private_address"]) for n in nodes] == [
        (r, "127.0.0.1", "10.0.0.7") for r in range(3)
    ]
    assert len({n["id"] for n in nodes}) == 3
    assert engine.run(root, "plan", "-detailed-exitcode", "-input=false").code == 0

    engine.must(root, "destroy", "-auto-approve", "-input=false", "-no-color")
    assert not terraform_runs.lives(int(child))
    assert engine.must(root, "state", "list").out == ""


def test_what_is_in_user_data_is_not_shown(engine: Engine, host: Host, tmp_path: Path) -> None:
    given = _given(host, "a2", {"0": "echo token-4711 >said\n"})
    root = engine.root(tmp_path / "root", "static", given)
    done = _apply(engine, root, given)
    assert done.code == 0
    assert "4711" not in done.out + done.err
    assert "4711" not in (root / "terraform.tfstate").read_text()
    engine.must(root, "destroy", "-auto-approve", "-input=false", "-no-color")


def test_a_changed_script_replaces_the_running_one(engine: Engine, host: Host, tmp_path: Path) -> None:
    given = _given(host, "a3", {"0": WORKS})
    root = engine.root(tmp_path / "root", "static", given)
    assert _apply(engine, root, given).code == 0
    first = _awaited(host.home / ".stepfare" / "a3" / "0" / "child")
    assert _apply(engine, root, _given(host, "a3", {"0": WORKS.replace("said", "said2")})).code == 0
    assert _awaited(host.home / ".stepfare" / "a3" / "0" / "said2") == "a3/0"
    assert not terraform_runs.lives(int(first))
    engine.must(root, "destroy", "-auto-approve", "-input=false", "-no-color")


def test_shrinking_stops_the_rank_that_goes(engine: Engine, host: Host, tmp_path: Path) -> None:
    given = _given(host, "a4", {"0": WORKS, "1": WORKS})
    root = engine.root(tmp_path / "root", "static", given)
    assert _apply(engine, root, given).code == 0
    kept, gone = (_awaited(host.home / ".stepfare" / "a4" / rank / "child") for rank in ("0", "1"))
    assert _apply(engine, root, _given(host, "a4", {"0": WORKS})).code == 0
    assert terraform_runs.lives(int(kept))
    assert not terraform_runs.lives(int(gone))
    engine.must(root, "destroy", "-auto-approve", "-input=false", "-no-color")
    assert not terraform_runs.lives(int(kept))


def test_another_machine_behind_the_address_is_refused(engine: Engine, host: Host, tmp_path: Path) -> None:
    stranger = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHkiXkGvfIBgP9kJrHqYKkYI2nKrPX3nP1kmXl5nKzZc"
    given = _given(host, "a5", {"0": WORKS}, host_key=stranger)
    main = engine.root(tmp_path / "root", "static", given) / "module" / "main.tf"
    main.write_text(main.read_text().replace('timeout     = "2m"', 'timeout     = "3s"'))
    done = _apply(engine, tmp_path / "root", given)
    assert done.code == 1
    assert "knownhosts: key mismatch" in done.err
    assert not (host.home / ".stepfare" / "a5").exists()


def test_a_group_that_is_not_ours_is_left_alone(engine: Engine, host: Host, tmp_path: Path) -> None:
    given = _given(host, "a6", {"0": WORKS})
    root = engine.root(tmp_path / "root", "static", given)
    assert _apply(engine, root, given).code == 0
    place = host.home / ".stepfare" / "a6" / "0"
    child, ours = _awaited(place / "child"), _awaited(place / "pid")
    # The number in the file now belongs to somebody else: this very process.
    (place / "pid").write_text(f"{os.getpid()} {ours.split()[1]}\n")
    engine.must(root, "destroy", "-auto-approve", "-input=false", "-no-color")
    assert terraform_runs.lives(int(child))
    os.killpg(int(ours.split()[0]), 9)


def test_a_spec_reaches_the_hosts_through_the_run_directory(host: Host, tmp_path: Path) -> None:
    entry = PoolHost("127.0.0.1", **host.described, private_address="10.0.0.7")
    nodes = (NodeSpec(0, "pool-1-0", None, "dgx-h100", Market.ON_DEMAND),)
    spec = WorkspaceSpec(
        "pool-1", "static", "hall", nodes, user_data={0: WORKS}, hosts={0: entry}, private_key_path=Path(host.key)
    )
    prepare(tmp_path / "run", spec)
    runner = terraform_runs.runner(terraform_runs.QUICK)
    (made,) = parse_nodes(runner.apply(tmp_path / "run").outputs)
    assert (made.address, made.private_address, made.zone) == ("127.0.0.1", "10.0.0.7", None)
    child = _awaited(host.home / ".stepfare" / "pool-1" / "0" / "child")
    assert terraform_runs.lives(int(child))
    assert runner.preview(tmp_path / "run").is_empty
    runner.destroy(tmp_path / "run")
    assert not terraform_runs.lives(int(child))
