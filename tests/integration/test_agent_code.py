"""The code of a job arrives as archive, git reference or image; what cannot be had is said, and nothing is started."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
import threading
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import agents
from tests.support.coordinator import Coordinator

TOKEN = "token-of-the-attempt-5f3a"
PROGRAM = b"echo trained by $0\n"


def _tar() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        entry = tarfile.TarInfo("code/train.sh")
        entry.size = len(PROGRAM)
        tar.addfile(entry, io.BytesIO(PROGRAM))
    return made.getvalue()


def _zip() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("code/train.sh", PROGRAM)
    return made.getvalue()


def _escaping() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("../outside"))
    return made.getvalue()


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _run(
    folder: Path, code: dict[str, str], command: str = "sh code/train.sh", path: str = "", **more: Any
) -> tuple[int, str, str]:
    """(exit code, reason, output)"""
    with (
        Coordinator(1, TOKEN).running() as coordinator,
        agents(folder, coordinator, command, code=code, path=path, **more) as (rank,),
    ):
        code_ = rank.end(60)
        assert coordinator.text(0) == rank.log()
    (ended,) = coordinator.messages("ended")
    return code_, ended["reason"], rank.log()


@pytest.mark.parametrize("archive", [_tar(), _zip()], ids=["tar.gz", "zip"])
def test_an_archive_of_the_right_digest(tmp_path: Path, archive: bytes) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "code.bin").write_bytes(archive)
    with _served(tmp_path / "served") as url:
        code = {
            "kind": "archive",
            "source": f"{url}/code.bin?signature=canary",
            "version": hashlib.sha256(archive).hexdigest(),
        }
        assert _run(tmp_path, code) == (0, "finished", "trained by code/train.sh\n")


def test_an_archive_that_is_another_one_or_none_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "code.bin").write_bytes(_escaping())
    right, wrong = hashlib.sha256(_escaping()).hexdigest(), "0" * 64
    with _served(tmp_path / "served") as url:
        for number, (name, version, problem) in enumerate(
            [
                ("code.bin", wrong, f"SHA-256 is {right}, not {wrong}"),
                ("code.bin", right, "cannot be unpacked"),
                ("missing", right, "HTTP 404"),
            ]
        ):
            source = f"{url}/{name}?signature=canary"
            exit_code, reason, output = _run(
                tmp_path / str(number), {"kind": "archive", "source": source, "version": version}
            )
            assert (exit_code, reason) == (4, "no_code")
            assert problem in output
            assert "canary" not in output
    assert not list(tmp_path.rglob("outside"))


@pytest.mark.parametrize("reference", ["commit", "v1", "main"])
def test_a_git_reference(tmp_path: Path, reference: str) -> None:
    repository = tmp_path / "repository"
    (repository / "code").mkdir(parents=True)
    (repository / "code" / "train.sh").write_bytes(PROGRAM)
    git = ["git", "-c", "user.name=n", "-c", "user.email=n@example.com", "-C", str(repository)]
    for arguments in (
        ["init", "--quiet", "--initial-branch=main"],
        ["config", "uploadpack.allowAnySHA1InWant", "true"],
        ["add", "."],
        ["commit", "--quiet", "-m", "code"],
        ["tag", "v1"],
    ):
        subprocess.run([*git, *arguments], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    version = commit if reference == "commit" else reference
    code = {"kind": "git", "source": f"file://{repository}", "version": version}
    assert _run(tmp_path, code) == (0, "finished", "trained by code/train.sh\n")


def docker_noting(folder: Path, script: str) -> Path:
    """The folder of a stand-in for docker that notes its arguments in ``calls``, then runs a script."""
    tools = folder / "tools"
    tools.mkdir()
    docker = tools / "docker"
    docker.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n{script}')
    docker.chmod(0o755)
    return tools


def test_an_image_is_pulled_run_and_removed(tmp_path: Path) -> None:
    """Against a stand-in for docker that notes its arguments and runs the command here."""
    tools = docker_noting(
        tmp_path,
        """[ "$1" = run ] || exit 0
while [ "$1" != registry.example.com/train:1 ]; do shift; done
shift
exec /bin/sh "$@"
""",
    )
    code = {"kind": "image", "source": "registry.example.com/train:1"}
    result = _run(tmp_path, code, "echo rank $NODE_RANK", path=str(tools))
    assert result == (0, "finished", "rank 0\n")
    pulled, ran, removed = (tmp_path / "calls").read_text().splitlines()
    assert pulled == "pull registry.example.com/train:1"
    assert removed == "rm --force stepfare-attempt-1-0"
    assert ran.startswith("run --rm --init --name stepfare-attempt-1-0 --network=host --ipc=host ")
    assert " --env=MASTER_ADDR --env=MASTER_PORT " in ran
    assert " --entrypoint=/bin/sh registry.example.com/train:1 -c " in ran
    assert ran.endswith(" -c echo rank $NODE_RANK")


def test_a_private_image_is_pulled_as_the_job_says_and_the_training_does_not_see_how(tmp_path: Path) -> None:
    tools = docker_noting(tmp_path, f"""[ "$1" != --config ] || cp "$2/config.json" {tmp_path}/seen.json\n""")
    secrets = {"STEPFARE_REGISTRY_USERNAME": "robot", "STEPFARE_REGISTRY_PASSWORD": "pass-of-the-robot"}
    code = {"kind": "image", "source": "registry.example.com/train:1"}
    assert _run(tmp_path, code, path=str(tools), environment={"secret": secrets}) == (0, "finished", "")
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen == {"auths": {"registry.example.com": {"auth": b64encode(b"robot:pass-of-the-robot").decode()}}}
    pulled, ran, _ = (tmp_path / "calls").read_text().splitlines()
    config = Path(pulled.split()[1])
    assert pulled.split()[2:] == ["pull", "registry.example.com/train:1"]
    assert not config.exists()
    assert "pass-of-the-robot" not in (tmp_path / "calls").read_text()
    assert "REGISTRY" not in ran


@pytest.mark.parametrize(("preflight", "end"), [("off", (4, "no_code")), ("warn", (7, "unfit"))])
def test_without_docker_it_says_so(tmp_path: Path, preflight: str, end: tuple[int, str]) -> None:
    """The checks of the machine say that the job is not to blame."""
    code = {"kind": "image", "source": "registry.example.com/train:1"}
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "docker").write_text("not a program")
    (tools / "docker").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tools))
        exit_code, reason, output = _run(tmp_path, code, preflight=preflight)
    assert (exit_code, reason) == end
    assert "stepfare: docker: " in output
