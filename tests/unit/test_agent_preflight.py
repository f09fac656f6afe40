"""What a machine is checked for before its gang meets, with tools that answer as the real ones do."""

from __future__ import annotations

import socket
from pathlib import Path
from unittest.mock import Mock

import pytest

from router.agent.config import AgentConfig, CodeSource
from router.agent.imds import NoticeSourceError
from router.agent.preflight import (
    BOOT_PROBLEMS,
    MOST_CLOCK_SECONDS,
    PreflightCheck,
    RunTool,
    check_clock,
    check_containers,
    check_disk,
    check_gpus,
    check_kfd,
    check_machine,
    check_reach,
    describe_problems,
)

H100 = "NVIDIA H100 80GB HBM3, 580.126.16\n"


def config(folder: Path, **more: object) -> AgentConfig:
    fields: dict[str, object] = {
        "attempt": "a1",
        "job": "j",
        "rank": 0,
        "nodes": 1,
        "command": "true",
        "workdir": str(folder / "work"),
        "coordinator": "https://c.example.com",
        "token_file": "",
        "log_folder": "",
        "spool_folder": "",
        "processes_per_node": 8,
        "accelerator": "H100",
        "gpus": True,
    }
    return AgentConfig(**{**fields, **more})  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> dict[str, str]:
    """A PATH with both tools; what they print is made up."""
    for name in ("nvidia-smi", "docker"):
        tool = tmp_path / name
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
    return {"PATH": str(tmp_path)}


def answers(code: int, text: str) -> RunTool:
    return lambda command, seconds: (code, text)


@pytest.mark.parametrize(
    ("accelerator", "count", "text", "problem"),
    [
        ("H100", 8, H100 * 8, ""),
        ("H100-NVL", 2, "NVIDIA H100 NVL, 580.1\n" * 2, ""),
        ("A100-80GB", 8, "NVIDIA A100-SXM4-80GB, 580.1\n" * 8, ""),
        ("A10G", 1, "NVIDIA A10G, 570.1\n", ""),
        ("RTX-PRO-6000", 1, "NVIDIA RTX PRO 6000 Blackwell Server Edition, 595.1\n", ""),
        ("V100-16GB", 1, "Tesla V100-SXM2-16GB, 570.1\n", ""),
        ("", 1, H100, ""),
        ("H100", 8, H100 * 7, "7 of 8 accelerators are there"),
        ("A10", 1, "NVIDIA A10G, 570.1\n", "NVIDIA A10G where A10 was ordered"),
        ("H200", 8, H100 * 8, "NVIDIA H100 80GB HBM3 where H200 was ordered"),
        ("H100", 8, "", "nvidia-smi: exit code 0: no output"),
    ],
)
def test_accelerators_are_as_many_and_of_the_name_that_were_ordered(
    tmp_path: Path, path: dict[str, str], accelerator: str, count: int, text: str, problem: str
) -> None:
    asked = config(tmp_path, accelerator=accelerator, processes_per_node=count)
    assert check_gpus(asked, path, answers(0, text)).problem == problem


def test_a_driver_that_is_missing_or_fails_is_named(tmp_path: Path, path: dict[str, str]) -> None:
    asked = config(tmp_path)
    assert "the driver is missing" in check_gpus(asked, {"PATH": str(tmp_path / "none")}, answers(0, H100)).problem
    failed = check_gpus(
        asked, path, answers(9, "NVIDIA-SMI has failed because it couldn't communicate with the driver")
    )
    assert failed.problem.startswith("nvidia-smi: exit code 9: NVIDIA-SMI has failed")
    hangs = Mock(side_effect=NoticeSourceError("nvidia-smi: no answer within 45 s"))
    assert check_gpus(asked, path, hangs).problem == "nvidia-smi: no answer within 45 s"


@pytest.mark.parametrize(
    ("code", "text", "gpus", "problem"),
    [
        (0, '{"io.containerd.runc.v2": {}, "nvidia": {}}', True, ""),
        (0, '{"io.containerd.runc.v2": {}}', False, ""),
        (0, '{"io.containerd.runc.v2": {}}', True, "Docker knows no runtime nvidia"),
        (
            1,
            "Cannot connect to the Docker daemon",
            True,
            "docker info: exit code 1: Cannot connect to the Docker daemon",
        ),
        (0, "what?", True, ""),
    ],
)
def test_docker_runs_and_knows_gpus(path: dict[str, str], code: int, text: str, gpus: bool, problem: str) -> None:
    assert check_containers(path, answers(code, text), gpus=gpus).problem.startswith(problem)
    assert bool(check_containers(path, answers(code, text), gpus=gpus).problem) is bool(problem)


def test_no_docker_at_all_is_named(tmp_path: Path) -> None:
    assert "no docker" in check_containers({"PATH": str(tmp_path)}, answers(0, ""), gpus=True).problem


def test_a_disk_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    check = check_disk(tmp_path / "work")
    assert check.problem == ""
    assert "GiB/s" in check.what
    assert list((tmp_path / "work").iterdir()) == []


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "work").write_text("a file")
    assert check_disk(tmp_path / "work").problem.endswith("File exists")


@pytest.mark.parametrize(
    ("theirs", "problem"), [(None, False), (1000.0, False), (1000.0 + MOST_CLOCK_SECONDS + 1, True)]
)
def test_a_clock_that_is_off_is_named(theirs: float | None, problem: bool) -> None:
    assert bool(check_clock(theirs, 1000.0).problem) is problem


def test_a_store_is_reached_or_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        url = f"s3://bucket/a?endpoint_override=http://127.0.0.1:{port}"
        here = PreflightCheck("store", "", f"127.0.0.1:{port} is reached")
        assert check_reach(url, {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}) == here
        assert check_reach("s3://bucket", {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}) == here
        assert check_reach(f"http://127.0.0.1:{port}/a", {}) == here
    assert check_reach(url, {}, name="data") == PreflightCheck("data", f"127.0.0.1:{port}: Connection refused")
    assert check_reach(f"file://{tmp_path}/new", {}).problem == ""
    assert check_reach(str(tmp_path), {}).problem == ""
    assert check_reach("file:///nowhere/at/all", {}).problem == "/nowhere/at/all: no such folder"
    assert check_reach("https://[no/x", {}).problem.startswith("no URL of a store")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("s3://b/x", ("s3.amazonaws.com", 443)),
        ("gs://b", ("storage.googleapis.com", 443)),
        ("abfs://c@account/x", ("account.blob.core.windows.net", 443)),
        ("abfss://c@account.dfs.core.windows.net/x", ("account.dfs.core.windows.net", 443)),
        ("http://hub.example.com/x", ("hub.example.com", 80)),
        ("https://hub.example.com:8443/x", ("hub.example.com", 8443)),
        ("s3://b/x?endpoint_override=minio.example.com:9000&scheme=https", ("minio.example.com", 9000)),
    ],
)
def test_the_host_that_answers_for_a_store(monkeypatch: pytest.MonkeyPatch, url: str, address: tuple[str, int]) -> None:
    asked = []

    def refuse(where: tuple[str, int], seconds: float) -> None:
        asked.append(where)
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", refuse)
    assert check_reach(url, {}).problem == f"{address[0]}:{address[1]}: timed out"
    assert asked == [address]


def test_a_machine_is_checked_for_what_its_job_needs(tmp_path: Path, path: dict[str, str]) -> None:
    asked = config(
        tmp_path, processes_per_node=1, code=CodeSource("image", "train:1"), checkpoint_store="file:///no/where"
    )
    checks = check_machine(asked, path, lambda: None, answers(0, H100))
    assert [check.name for check in checks] == ["gpus", "containers", "disk", "clock", "store"]
    assert describe_problems(checks) == "store: /no/where: no such folder"
    plain = check_machine(config(tmp_path, gpus=False), path, lambda: None, answers(0, H100))
    assert [check.name for check in plain] == ["disk", "clock"]
    assert describe_problems(plain) == ""
    for data, names in (("https://[no", ["disk", "clock", "data"]), ("hf://corpus/tokens", ["disk", "clock"])):
        streams = check_machine(config(tmp_path, gpus=False, data=data), path, lambda: None, answers(0, H100))
        assert [check.name for check in streams] == names


def test_accelerators_of_amd_are_those_that_its_driver_lists(tmp_path: Path) -> None:
    """The topology's nodes as the kernel writes them: processors have the id 0."""
    device, nodes = tmp_path / "kfd", tmp_path / "nodes"
    assert check_kfd(8, device, nodes).problem == f"no {device}: the driver is missing in the machine's image"
    device.touch()
    for number, gpu_id in enumerate([0, 0, *range(50000, 50007)]):
        (nodes / str(number)).mkdir(parents=True)
        (nodes / str(number) / "gpu_id").write_text(f"{gpu_id}\n")
    assert check_kfd(8, device, nodes) == PreflightCheck("gpus", "7 of 8 accelerators are there", "7 accelerators")
    assert check_kfd(7, device, nodes) == PreflightCheck("gpus", "", "7 accelerators")


def test_a_step_of_the_boot_script_that_failed_comes_first(tmp_path: Path, path: dict[str, str]) -> None:
    (tmp_path / BOOT_PROBLEMS).write_text("mount-nvme.sh ended with 1:\ndisks are taken\n")
    asked = config(tmp_path, gpus=False, log_folder=str(tmp_path))
    checks = check_machine(asked, path, lambda: None, answers(0, H100))
    assert [check.name for check in checks] == ["boot", "disk", "clock"]
    assert describe_problems(checks) == "boot: mount-nvme.sh ended with 1: disks are taken"
