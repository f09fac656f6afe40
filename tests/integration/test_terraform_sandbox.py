"""Gangs of real processes, made and released by the real engine: each starts, each ends, nothing is left."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from terraform.errors import ApplyFailedError
from terraform.events import TerraformEvent
from terraform.render import parse_nodes
from terraform.runner import Runner
from terraform.workdir import forget_secrets, prepare
from tests.support import terraform_runs as support
from tests.support.gangs import sandbox

pytestmark = support.needs_engine

CANARY = "canary-7c1e-token"
SLEEP = "exec sleep 300"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "run"
    support.end_nodes(tmp_path / "run")


@pytest.fixture
def runner() -> Runner:
    return support.runner(STEPFARE_GRACE_SECONDS="1")


def test_four_nodes_live_and_die(directory: Path, runner: Runner) -> None:
    says = 'echo "$STEPFARE_ATTEMPT $STEPFARE_RANK $STEPFARE_NODE $STEPFARE_NODE_ID"; '
    prepare(directory, sandbox(scripts=dict.fromkeys(range(4), says + SLEEP)))
    runner.init(directory)
    preview = runner.preview(directory)
    assert (len(preview.creates), preview.changes, preview.destroys, preview.drift) == (9, (), (), ())
    assert support.pids(directory) == {}

    events: list[TerraformEvent] = []
    applied = runner.apply(directory, events.append, preview=preview)
    nodes = parse_nodes(applied.outputs)
    assert [(node.rank, node.address, str(node.max_usd_per_hour)) for node in nodes] == [
        (rank, "127.0.0.1", "12.50") for rank in range(4)
    ]
    assert len({node.id for node in nodes}) == 4
    assert [event.kind for event in events].count("apply_complete") == 9
    assert {event.id for event in applied.done} >= {node.id for node in nodes}
    assert runner.outputs(directory) == applied.outputs
    assert len(runner.state(directory)) == 9
    assert runner.preview(directory).is_empty

    processes = support.pids(directory)
    assert sorted(processes) == [f"demo-1-{rank}" for rank in range(4)]
    assert all(support.lives(pid) for pid in processes.values())
    # Each leads a session of its own: no signal that is meant for the engine reaches it.
    assert [os.getsid(pid) for pid in processes.values()] == list(processes.values())
    for node in nodes:
        log = directory / "nodes" / f"demo-1-{node.rank}" / "log"
        support.wait_for(lambda log=log: log.stat().st_size > 0)  # type: ignore[misc]
        assert log.read_text() == f"demo-1 {node.rank} demo-1-{node.rank} {node.id}\n"

    forget_secrets(directory)
    assert len(runner.destroy(directory)) == 9
    assert not any(support.lives(pid) for pid in processes.values())
    assert runner.state(directory) == ()
    assert runner.outputs(directory) == {}
    assert runner.destroy(directory) == ()


def test_idle_nodes_run_nothing(directory: Path, runner: Runner) -> None:
    prepare(directory, sandbox(count=12))
    nodes = parse_nodes(runner.apply(directory).outputs)
    assert [node.rank for node in nodes] == list(range(12))
    assert not (directory / "nodes").exists()
    runner.destroy(directory)
    assert runner.state(directory) == ()


def test_a_process_that_ignores_sigterm_and_its_children_end_too(directory: Path, runner: Runner) -> None:
    prepare(
        directory, sandbox(count=1, scripts={0: "#!/bin/sh\ntrap '' TERM\nsleep 300 &\necho $!\nwait\nsleep 300\n"})
    )
    runner.apply(directory)
    (pid,) = support.pids(directory).values()
    log = directory / "nodes" / "demo-1-0" / "log"
    support.wait_for(lambda: log.stat().st_size > 0)
    child = int(log.read_text())
    assert support.lives(child)
    runner.destroy(directory)
    support.wait_for(lambda: not support.lives(pid))
    support.wait_for(lambda: not support.lives(child))


def test_a_number_that_somebody_else_has_by_now_is_left_alone(directory: Path, runner: Runner) -> None:
    """A pid is used again after a restart of the machine; when its process began tells it from ours."""
    prepare(directory, sandbox(count=1, scripts={0: SLEEP}))
    runner.apply(directory)
    (pid,) = support.pids(directory).values()
    (directory / "nodes" / "demo-1-0" / "born").write_text("1\n")
    runner.destroy(directory)
    assert support.lives(pid)
    os.kill(pid, 9)


def test_a_node_that_was_taken_is_seen_and_replaced_once(directory: Path, runner: Runner) -> None:
    prepare(directory, sandbox(count=2, scripts={0: SLEEP, 1: SLEEP}))
    before = parse_nodes(runner.apply(directory).outputs)
    stays, goes = support.pids(directory).values()
    os.killpg(goes, 9)
    (directory / "nodes" / "demo-1-1" / "taken").write_text("2026-11-21T18:00:00Z")

    preview = runner.preview(directory)
    expected = ('module.gang.terraform_data.node["1"]', 'module.gang.terraform_data.process["1"]')
    assert (preview.creates, preview.destroys) == (expected, expected)
    after = parse_nodes(runner.apply(directory, preview=preview).outputs)
    assert after[0].id == before[0].id
    assert after[1].id != before[1].id
    assert support.lives(stays)
    assert support.lives(support.pids(directory)["demo-1-1"])
    assert runner.preview(directory).is_empty
    runner.destroy(directory)


def test_a_smaller_gang_releases_the_rest(directory: Path, runner: Runner) -> None:
    prepare(directory, sandbox(count=3, scripts=dict.fromkeys(range(3), SLEEP)))
    runner.apply(directory)
    processes = support.pids(directory)
    prepare(directory, sandbox(count=1, scripts={0: SLEEP}))
    assert len(parse_nodes(runner.apply(directory).outputs)) == 1
    assert [support.lives(pid) for pid in processes.values()] == [True, False, False]
    runner.destroy(directory)


def test_a_start_that_fails_says_where_and_why_and_leaves_nothing(directory: Path, runner: Runner) -> None:
    """The second node's folder cannot be made. Terraform runs no destroy-time provisioner of a tainted resource, so
    that the module keeps what stops a node apart from what starts it."""
    prepare(directory, sandbox(count=2, scripts={0: SLEEP, 1: f"echo {CANARY}"}))
    (directory / "nodes").mkdir()
    (directory / "nodes" / "demo-1-1").write_text("in the way")
    with pytest.raises(ApplyFailedError) as failed:
        runner.apply(directory)
    (diagnostic,) = [d for d in failed.value.diagnostics if d.is_error]
    assert diagnostic.address == 'module.gang.terraform_data.process["1"]'
    assert diagnostic.summary == "local-exec provisioner error"
    assert "exit status" in diagnostic.detail
    assert diagnostic.address in str(failed.value)
    assert len(runner.state(directory)) == 5  # the failed one too: tainted
    state = json.loads((directory / "terraform.tfstate").read_text())
    tainted = [i["index_key"] for r in state["resources"] for i in r["instances"] if i.get("status") == "tainted"]
    assert tainted == ["1"]

    (pid,) = support.pids(directory).values()
    runner.destroy(directory)
    assert not support.lives(pid)
    assert runner.state(directory) == ()


def test_a_tainted_start_that_did_come_up_is_stopped(directory: Path, runner: Runner) -> None:
    """As after an interruption between the start of a process and Terraform's learning of it."""
    prepare(directory, sandbox(count=1, scripts={0: SLEEP}))
    runner.apply(directory)
    (first,) = support.pids(directory).values()
    state = json.loads((directory / "terraform.tfstate").read_text())
    for resource in state["resources"]:
        if resource["name"] == "process":
            resource["instances"][0]["status"] = "tainted"
    (directory / "terraform.tfstate").write_text(json.dumps(state))

    runner.apply(directory)  # makes it anew, and ends the first
    (second,) = support.pids(directory).values()
    assert (support.lives(first), support.lives(second)) == (False, True)
    runner.destroy(directory)
    assert not support.lives(second)


def test_user_data_is_kept_where_it_was_put_and_nowhere_else(directory: Path, runner: Runner) -> None:
    prepare(directory, sandbox(count=2, scripts={0: f"TOKEN={CANARY} exec sleep 300", 1: f"exit 1 # {CANARY}"}))
    preview = runner.preview(directory)
    assert stat.S_IMODE(preview.file.stat().st_mode) == 0o600
    applied = runner.apply(directory, preview=preview)
    assert CANARY not in repr((preview, applied, runner))
    assert not preview.file.exists()
    files = [path for path in directory.rglob("*") if path.is_file()]
    holding = {path.relative_to(directory).as_posix() for path in files if CANARY.encode() in path.read_bytes()}
    scripts = {"nodes/demo-1-0/script", "nodes/demo-1-1/script"}
    assert holding == {"secrets.auto.tfvars.json", *scripts}
    assert {stat.S_IMODE((directory / name).stat().st_mode) & 0o077 for name in holding} == {0}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    runner.destroy(directory)
    assert not any((directory / name).exists() for name in scripts)


def test_nodes_end_though_the_scripts_were_forgotten_and_something_applied_since(
    directory: Path, runner: Runner
) -> None:
    prepare(directory, sandbox(count=1, scripts={0: SLEEP}))
    runner.apply(directory)
    (pid,) = support.pids(directory).values()
    forget_secrets(directory)
    runner.apply(directory)
    runner.destroy(directory)
    assert not support.lives(pid)


def test_the_directory_may_move_between_runs(directory: Path, runner: Runner, tmp_path: Path) -> None:
    """Nothing in it names its own place, nor the package that it was made from."""
    prepare(directory, sandbox(count=1, scripts={0: SLEEP}))
    runner.apply(directory)
    (pid,) = support.pids(directory).values()
    moved = tmp_path / "moved"
    shutil.move(directory, moved)
    runner.destroy(moved)
    assert not support.lives(pid)


def test_a_training_has_none_of_the_keys_that_terraform_works_with(directory: Path) -> None:
    """On a machine of a cloud it would not have them either."""
    names = (
        "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "ARM_CLIENT_SECRET", "GOOGLE_CREDENTIALS", "PGPASSWORD",
        "TF_TOKEN_example_com", "TF_VAR_x", "STEPFARE_METRICS_TOKEN", "SSH_AUTH_SOCK", "COMPANY_PROXY",
    )  # fmt: skip
    keys = dict.fromkeys(names, CANARY)
    runner = support.runner(support.QUICK, **{"STEPFARE_GRACE_SECONDS": "1", "HOME": "/home/ada", "LANG": "C", **keys})
    prepare(directory, sandbox(scripts={0: f"env | sort >env.new && mv env.new environment; {SLEEP}"}))
    runner.apply(directory)
    said = directory / "nodes" / "demo-1-0" / "environment"
    support.wait_for(said.exists)
    environment = dict(line.partition("=")[::2] for line in said.read_text().splitlines())
    assert CANARY not in said.read_text()
    assert environment.keys() - {"PWD", "OLDPWD", "SHLVL", "_"} == {
        "PATH",
        "HOME",
        "LANG",
        "STEPFARE_ATTEMPT",
        "STEPFARE_RANK",
        "STEPFARE_NODE",
        "STEPFARE_NODE_ID",
        "STEPFARE_STATE",
        "STEPFARE_NODE_FOLDER",
        "STEPFARE_GRACE_SECONDS",
    }
    runner.destroy(directory)
