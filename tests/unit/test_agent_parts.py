"""Parts of the node agent, each alone: configuration, environment, masking, bounded output, the outbox."""

from __future__ import annotations

import ast
import io
import json
import random
import subprocess
import tarfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from router.agent.config import AgentConfig, AgentConfigError, CodeSource, parse_config, read_config
from router.agent.fetch import CodeFetchError, unpack_archive
from router.agent.messenger import Outbox
from router.agent.output import OutputTail, RotatingLog, SecretMask
from router.agent.starters import command_line, gang_environment, read_job_environment
from router.agent.supervise import ProcessExit
from tests.support.repository import ROOT

LEAST: dict[str, Any] = {
    "attempt": "a-1", "job": "j", "rank": 0, "nodes": 2, "command": "true", "workdir": "w",
    "coordinator": "https://watch.example.com", "token_file": "t", "log_folder": "l", "spool_folder": "s",
}  # fmt: skip


def _config(**more: Any) -> AgentConfig:
    return parse_config({**LEAST, **more})


def test_a_configuration_survives_its_way_through_json() -> None:
    config = _config(code={"kind": "git", "source": "https://x.example.com/r.git", "version": "v1"}, mounts=["/a:/a"])
    assert config.code == CodeSource("git", "https://x.example.com/r.git", "v1")
    assert parse_config(json.loads(json.dumps(asdict(config)))) == config


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"colour": "blue"}, "colour: unknown"),
        ({"rank": True}, "rank: not of type int"),
        ({"rank": 2}, "rank: not below nodes"),
        ({"attempt": "a b"}, "attempt: letters"),
        ({"engine": "mpi"}, "engine: not one of"),
        ({"master_port": 70000}, "master_port: not a port"),
        ({"master_address": "10.0.0.1", "master_port": 0}, "master_port: has to be given"),
        ({"coordinator": "ftp://x"}, "coordinator: not the"),
        ({"coordinator": "https://user@x.example.com"}, "coordinator: not the"),
        ({"coordinator": "http://watch.example.com"}, "send the token in the clear"),
        ({"heartbeat_seconds": float("nan")}, "heartbeat_seconds: not between"),
        ({"mounts": "all"}, "mounts: not a list"),
        ({"code": []}, "code: not an object"),
        ({"code": {"kind": "tape"}}, "code.kind: not one of"),
        ({"code": {"kind": "image"}}, "code.source: missing"),
        ({"code": {"kind": "image", "source": "--privileged"}}, "code.source: missing"),
        ({"code": {"kind": "archive", "source": "https://x", "version": "AB"}}, "code.version: not a SHA-256"),
        ({"code": {"kind": "archive", "source": "s3://x", "version": "0" * 64}}, "code.source: not an https"),
        ({"code": {"kind": "git", "source": "https://x", "version": "--upload-pack=x"}}, "code.version: not a commit"),
        ({"code": {"kind": "git", "source": "https://u:pw@x", "version": "v1"}}, "holds a password"),
        ({"code": {"kind": "image", "source": "i"}, "engine": "slurm"}, "code.kind: slurm"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused_by_key(more: dict[str, Any], problem: str) -> None:
    with pytest.raises(AgentConfigError, match=problem):
        _config(**more)


def test_so_is_one_without_a_key_or_without_json(tmp_path: Path) -> None:
    with pytest.raises(AgentConfigError, match="command: missing"):
        parse_config({name: value for name, value in LEAST.items() if name != "command"})
    with pytest.raises(AgentConfigError, match="not an object"):
        parse_config([])
    (tmp_path / "c.json").write_text("{")
    with pytest.raises(AgentConfigError, match=r"c\.json"):
        read_config(str(tmp_path / "c.json"))


@pytest.mark.parametrize(
    "content", ["[]", '{"more": {}}', '{"plain": []}', '{"secret": {"A": 1}}', '{"plain": {"A=": ""}}', "{"]
)
def test_an_env_file_is_refused_without_showing_a_value(tmp_path: Path, content: str) -> None:
    (tmp_path / "env.json").write_text(content)
    with pytest.raises(AgentConfigError, match=r"env\.json: "):
        read_job_environment(str(tmp_path / "env.json"))


def test_ranks_of_processes_only_where_a_node_starts_one() -> None:
    one = gang_environment(_config(master_address="10.0.0.1", engine="command"))
    assert (one["WORLD_SIZE"], one["RANK"], one["LOCAL_RANK"]) == ("2", "0", "0")
    many = gang_environment(_config(master_address="10.0.0.1", processes_per_node=8))
    assert many["WORLD_SIZE"] == "16"
    assert not {"RANK", "LOCAL_RANK"} & set(many)
    assert {name: value for name, value in many.items() if name.startswith("PET_")} == {
        "PET_MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_PORT": "29500",
        "PET_NNODES": "2",
        "PET_NODE_RANK": "0",
        "PET_NPROC_PER_NODE": "8",
    }


def test_imported_commands_find_the_variables_of_skypilot() -> None:
    found = gang_environment(_config(master_address="10.0.0.1", processes_per_node=8, rank=1), ("10.0.0.1", "10.0.0.2"))
    assert {name: value for name, value in found.items() if name.startswith("SKYPILOT_")} == {
        "SKYPILOT_NODE_RANK": "1",
        "SKYPILOT_NUM_NODES": "2",
        "SKYPILOT_NUM_GPUS_PER_NODE": "8",
        "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
    }
    assert "SKYPILOT_NODE_IPS" not in gang_environment(_config(master_address="10.0.0.1"))


def test_a_container_gets_names_not_values() -> None:
    config = _config(code={"kind": "image", "source": "registry.example.com/i:1"}, gpus=True, mounts=["/a:/a"])
    line = command_line(config, ["B", "A"], "/var/lib/control")
    assert line[:4] == ["docker", "run", "--rm", "--init"]
    assert [word for word in line if word.startswith("--env")] == ["--env=A", "--env=B"]
    assert {"--gpus=all", "--volume=/a:/a"} <= set(line)
    assert line[-7:-4] == ["--entrypoint=/bin/sh", "registry.example.com/i:1", "-c"]
    assert line[-2:] == ["-c", "true"]
    assert "--volume=/var/lib/control:/var/lib/control" in line


def test_a_container_gets_amds_gpus_as_devices() -> None:
    config = _config(code={"kind": "image", "source": "i"}, gpus=True, gpu_vendor="amd")
    line = command_line(config, [], "/c")
    assert {"--device=/dev/kfd", "--device=/dev/dri", "--group-add=video"} <= set(line)
    assert "--gpus=all" not in line
    with pytest.raises(AgentConfigError, match="gpu_vendor: not one of nvidia, amd"):
        _config(gpu_vendor="intel")


def test_in_a_container_the_helper_comes_before_what_the_image_has_on_its_path() -> None:
    config = _config(code={"kind": "image", "source": "i"}, command='echo "$PYTHONPATH"; exit 7')
    line = command_line(config, [], "/c")
    inside = line[line.index("i") + 1 :]
    for own, path in ({}, "/c/python\n"), ({"PYTHONPATH": "/app:/lib"}, "/c/python:/app:/lib\n"):
        given = {"STEPFARE_CONTROL": "/c", **own}
        ran = subprocess.run(["/bin/sh", *inside], env=given, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout) == (7, path)


@pytest.mark.parametrize(
    ("returncode", "expected"), [(0, (0, None)), (7, (7, None)), (-9, (None, 9)), (137, (137, 9)), (255, (255, None))]
)
def test_how_a_process_went(returncode: int, expected: tuple[int | None, int | None]) -> None:
    exit_ = ProcessExit.of(returncode)
    assert (exit_.code, exit_.signal) == expected
    assert exit_.fine == (returncode == 0)


def test_a_secret_is_masked_wherever_the_stream_is_cut() -> None:
    secrets = ["correct-horse", "correct-horse-battery", "first line of it\nsecond line of it", "short"]
    text = b"a correct-horse-battery b correct-horse c second line of it short correct-h"
    dice = random.Random(7)
    for _ in range(300):
        mask, shown = SecretMask(secrets), b""
        cuts = sorted(dice.sample(range(len(text)), 5))
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            shown += mask.feed(text[start:end])
        shown += mask.flush()
        assert b"orse" not in shown
        assert b"second" not in shown
        assert shown.endswith(b" short correct-h")


def test_logs_rotate_within_bounds_and_lose_only_the_oldest(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "x.log", 1000, 3)
    for number in range(1000):
        log.write(f"{number:09d}\n".encode())
    log.close()
    files = [tmp_path / name for name in ("x.log.2", "x.log.1", "x.log")]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert all(file.stat().st_size <= 1000 for file in files)
    kept = b"".join(file.read_bytes() for file in files).split()
    assert [int(line) for line in kept] == list(range(1000 - len(kept), 1000))
    again = RotatingLog(tmp_path / "x.log", 1000, 1)
    again.write(b"z" * 5000)
    assert (tmp_path / "x.log").read_bytes() == b"z" * 1000


def test_a_log_that_cannot_be_written_counts_what_is_lost(tmp_path: Path) -> None:
    log = RotatingLog(tmp_path / "missing" / "x.log", 1000, 3)
    log.write(b"abc")
    assert log.lost == 3


def test_the_tail_keeps_the_newest_and_knows_where_it_was() -> None:
    tail = OutputTail(4)
    tail.write(b"abcdef")
    assert tail.take() == (2, b"cdef")
    tail.write(b"gh")
    assert tail.take() == (6, b"gh")
    assert tail.take() == (8, b"")


def test_the_outbox_outlives_its_process_and_gives_up_logs_first(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "spool", 3000)
    box.put("ended", {"n": -1})
    for number in range(10):
        box.put("logs", {"n": number, "text": "x" * 800})
    again = Outbox(tmp_path / "spool", 3000)
    assert len(again) == len(box) == 4
    seen = []
    while (first := again.first()) is not None:
        seen.append((first[0], first[1]["n"]))
        again.done()
    assert seen == [("ended", -1), ("logs", 7), ("logs", 8), ("logs", 9)]
    assert list((tmp_path / "spool").iterdir()) == []
    # What this object remembers is gone from the disk: dropped, not an error.
    assert box.first() is None


def test_without_a_disk_the_outbox_remembers(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "spool", 3000)
    (tmp_path / "spool").rmdir()
    box.put("ended", {"n": 1})
    assert box.first() == ("ended", {"n": 1})
    box.done()
    assert len(box) == 0


def test_the_agent_is_written_in_python_3_9() -> None:
    for file in sorted((ROOT / "router" / "agent").rglob("*.py")):
        ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 9))


_FILTERED = hasattr(tarfile, "data_filter")


@pytest.fixture(
    params=[pytest.param(True, marks=pytest.mark.skipif(not _FILTERED, reason="an old interpreter")), False]
)
def filters(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    return bool(request.param)


def _member(name: str, kind: bytes = tarfile.REGTYPE, leads: str = "", **said: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, leads, said.get("mode", 0o644)
    member.uid, member.size = 12345, 2 if kind == tarfile.REGTYPE else 0
    return member


def _archive(place: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(place, "w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"hi") if member.size else None)
    return place


@pytest.mark.parametrize(
    "members",
    [
        (_member("../outside"),),
        (_member("code/../../outside"),),
        (_member("link", tarfile.SYMTYPE, ".."), _member("link/outside")),
        (_member("link", tarfile.SYMTYPE, "/tmp"),),
        (_member("x", tarfile.SYMTYPE, "."), _member("x/x/../outside")),
        (_member("hard", tarfile.LNKTYPE, "../secret"),),
        (_member("device", tarfile.CHRTYPE),),
    ],
    ids=["name", "roundabout", "link", "absolute-link", "link-chain", "hard-link", "device"],
)
def test_nothing_leads_outside(tmp_path: Path, filters: bool, members: tuple[tarfile.TarInfo, ...]) -> None:
    (tmp_path / "secret").write_text("canary")
    folder = tmp_path / "in" / "code"
    folder.mkdir(parents=True)
    with pytest.raises(CodeFetchError, match="said: cannot be unpacked"):
        unpack_archive(_archive(tmp_path / "a.tar", *members), folder, "said")
    assert not list(tmp_path.rglob("outside"))
    assert not [path for path in folder.rglob("*") if path.is_file() and path.read_text() == "canary"]


def test_links_inside_and_modes_are_kept(tmp_path: Path, filters: bool) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    members = (
        _member("lib", tarfile.DIRTYPE, mode=0o555),
        _member("lib/run.sh", mode=0o6775),
        _member("bin", tarfile.DIRTYPE, mode=0o755),
        _member("bin/run", tarfile.SYMTYPE, "../lib/run.sh"),
    )
    unpack_archive(_archive(tmp_path / "a.tar", *members), folder, "said")
    assert (folder / "bin" / "run").read_text() == "hi"
    assert (folder / "lib" / "run.sh").stat().st_mode & 0o7777 == 0o755
    assert (folder / "lib" / "run.sh").stat().st_uid == tmp_path.stat().st_uid
