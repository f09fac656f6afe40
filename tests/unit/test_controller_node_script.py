"""The script that brings an agent up on a machine without cloud-init, run for real."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from router.agent.config import AgentConfig, AgentConfigError, CodeSource, read_config
from router.agent.starters import read_job_environment
from router.controller.workspace.bootstrap import (
    MAX_USER_DATA_BYTES,
    SECRET_FILES,
    Bootstrap,
    CoordinatorEndpoint,
    NodeSecrets,
    UserDataTooLargeError,
    node_script,
    pack_agent,
)
from tests.support.busy import eventually
from tests.support.certificates import write_certificate
from tests.support.coordinator import Coordinator

TOKEN, SECRET = "token-canary-3b0c", "secret-canary-55d1"
CONFIG = AgentConfig(
    attempt="attempt-1",
    job="bert",
    rank=0,
    nodes=1,
    command="echo '@folder@ ünï'",
    workdir="",
    token_file="",
    coordinator="http://127.0.0.1:9",
    log_folder="",
    spool_folder="",
    gang_seconds=20.0,
    master_port=0,
    heartbeat_seconds=0.2,
)
# In the agent's place: says how it was started.
STANDIN = b"""\
import json, os, sys
print(json.dumps({"argv": sys.argv, "isolated": sys.flags.isolated, "umask": os.umask(0)}))
"""
AT = CoordinatorEndpoint("http://127.0.0.1:9", "0" * 64)


def spec(**changes: Any) -> Bootstrap:
    told = Bootstrap(CONFIG, AT, NodeSecrets(TOKEN, {"BATCH": "512"}, {"API_KEY": SECRET}))
    return replace(told, **changes)


def at(url: str, agent: bytes = STANDIN, ca: str | None = None) -> CoordinatorEndpoint:
    return CoordinatorEndpoint(url, _sha(agent), ca)


def start(folder: Path, text: str, **environment: str) -> subprocess.Popen[str]:
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "script"
    script.write_text(text, encoding="utf-8")
    script.chmod(0o700)
    kept = {name: os.environ[name] for name in ("PATH",)}
    return subprocess.Popen(
        [sys.executable, script], env={**kept, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(folder: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    process = start(folder, text, **environment)
    out, err = process.communicate(timeout=30)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


Answer = Callable[[BaseHTTPRequestHandler], None]


def whole(data: bytes, status: int = 200) -> Answer:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return send


def cut(data: bytes) -> Answer:
    """Half of what was announced, as when the sender is killed."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[: len(data) // 2])

    return send


def nonsense(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"220 mail.example.com ESMTP\r\n")


@contextmanager
def serving(*answers: Answer, context: ssl.SSLContext | None = None, port: int = 0) -> Iterator[str]:
    """The answers in turn, the last one for ever."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            (left.pop(0) if len(left) > 1 else left[0])(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def started(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert (done.returncode, done.stderr) == (0, "")
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_it_writes_what_the_agent_needs_and_becomes_it(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    with serving(whole(STANDIN)) as url:
        said = started(run(folder, node_script(spec(home=at(url)))))
    assert said == {"argv": [str(folder / "agent.pyz"), str(folder / "agent.json")], "isolated": 1, "umask": 0o077}
    assert (folder / "agent.pyz").read_bytes() == STANDIN
    config = read_config(str(folder / "agent.json"))
    assert (config.command, config.attempt, config.gang_seconds) == ("echo '@folder@ ünï'", "attempt-1", 20.0)
    assert [config.workdir, config.token_file, config.env_file, config.log_folder, config.spool_folder] == [
        f"{folder}/{name}" for name in ("work", "token", "env.json", "log.d", "spool")
    ]
    assert (folder / "token").read_text() == f"{TOKEN}\n"
    given = read_job_environment(str(folder / "env.json"))
    assert (given.plain, given.secret) == ({"BATCH": "512"}, {"API_KEY": SECRET})


def test_nobody_else_reads_what_it_writes(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    with serving(whole(STANDIN)) as url:
        started(run(folder, node_script(spec(home=at(url, ca="PEM")))))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir() if file.name != "script"}
    assert modes == dict.fromkeys(["agent.json", "agent.pyz", "ca.pem", "env.json", "token"], 0o600)
    holding = {file.name for file in folder.iterdir() if {TOKEN, SECRET} & _found(file)}
    assert holding == {"script", *SECRET_FILES}


def _found(file: Path) -> set[str]:
    text = file.read_text(encoding="utf-8")
    return {word for word in (TOKEN, SECRET) if word in text}


@pytest.mark.parametrize("name", ['with "quotes" and \\', "ünï code", "a\nb", "{0} %s"])
def test_it_may_stand_in_any_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    with serving(whole(STANDIN)) as url:
        started(run(folder, node_script(spec(home=at(url)))))
    assert read_config(str(folder / "agent.json")).token_file == f"{folder}/token"


def test_the_folder_may_be_named(tmp_path: Path) -> None:
    """The sandbox runs the script from where it keeps it, in a folder that it names."""
    (tmp_path / "node").mkdir()
    with serving(whole(STANDIN)) as url:
        started(
            run(tmp_path / "elsewhere", node_script(spec(home=at(url))), STEPFARE_NODE_FOLDER=str(tmp_path / "node"))
        )
    assert (tmp_path / "node" / "agent.json").exists()
    assert [file.name for file in (tmp_path / "elsewhere").iterdir()] == ["script"]


def test_another_agent_than_the_one_that_was_ordered_is_not_started(tmp_path: Path) -> None:
    with serving(whole(b"print('gotcha')")) as url:
        done = run(tmp_path / "node", node_script(spec(home=at(url))))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "stepfare: the agent is not the one that was ordered\n"
    assert not (tmp_path / "node" / "agent.pyz").exists()


@pytest.mark.parametrize("trouble", [cut(STANDIN), nonsense, whole(b"", 503), whole(b"{}", 404)])
def test_trouble_on_the_way_is_no_end(tmp_path: Path, trouble: Answer) -> None:
    with serving(trouble, trouble, whole(STANDIN)) as url:
        started(run(tmp_path / "node", node_script(spec(home=at(url)))))


def test_it_waits_for_a_server_that_is_away(tmp_path: Path) -> None:
    with serving(whole(STANDIN)) as url:
        pass
    process = start(tmp_path / "node", node_script(spec(home=at(url))))
    eventually((tmp_path / "node" / "env.json").exists)
    time.sleep(0.3)
    assert process.poll() is None
    with serving(whole(STANDIN), port=int(url.rpartition(":")[2])):
        out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["isolated"] == 1


def test_it_does_not_wait_for_ever(tmp_path: Path) -> None:
    with serving(whole(STANDIN)) as url:
        pass
    done = run(tmp_path / "node", node_script(spec(config=replace(CONFIG, gang_seconds=0.2), home=at(url))))
    assert done.returncode == 1
    assert "no agent to be had" in done.stderr
    assert TOKEN not in done.stderr


def test_no_proxy_stands_between_it_and_this_machine(tmp_path: Path) -> None:
    proxy = "http://127.0.0.1:9"
    with serving(whole(STANDIN)) as url:
        done = run(
            tmp_path / "node", node_script(spec(home=at(url))), http_proxy=proxy, HTTP_PROXY=proxy, https_proxy=proxy
        )
    started(done)


def test_over_tls_it_believes_the_authority_it_was_given_alone(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
    file, key = write_certificate(own)
    certificate, stranger = file.read_text(), write_certificate(other)[0].read_text()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    brief = replace(CONFIG, gang_seconds=0.2)
    with serving(whole(STANDIN), context=context) as url:
        started(run(tmp_path / "a", node_script(spec(home=at(url, ca=certificate)))))
        assert (tmp_path / "a" / "ca.pem").read_text() == certificate
        for ca in (None, stranger):
            done = run(tmp_path / f"b{ca is None}", node_script(spec(config=brief, home=at(url, ca=ca))))
            assert done.returncode == 1
            assert "CERTIFICATE_VERIFY_FAILED" in done.stderr


def test_the_real_agent_runs_the_job_with_its_environment(tmp_path: Path) -> None:
    agent = pack_agent()
    command = 'echo "rank $NODE_RANK of $NNODES batch $BATCH"; [ "$API_KEY" = ' + SECRET + " ]"
    with Coordinator(1, TOKEN, agent=agent).running() as coordinator:
        config = replace(CONFIG, coordinator=coordinator.url, command=command)
        done = run(tmp_path / "node", node_script(spec(config=config, home=at(coordinator.url, agent))))
        assert done.returncode == 0, done.stderr
        assert coordinator.problems == []
        (ended,) = coordinator.messages("ended", 0)
        assert (ended["state"], ended["reason"]) == ("ended", "finished")
        assert coordinator.text(0) == "rank 0 of 1 batch 512\n"
    assert TOKEN not in done.stdout + done.stderr


def test_the_same_spec_gives_the_same_text() -> None:
    assert len({node_script(spec()) for _ in range(3)}) == 1


def test_what_the_agent_would_refuse_and_what_is_too_large() -> None:
    with pytest.raises(AgentConfigError, match="rank"):
        node_script(spec(config=replace(CONFIG, rank=3)))
    with pytest.raises(AgentConfigError, match="password"):
        node_script(spec(config=replace(CONFIG, code=CodeSource("git", "https://u:p@x/y.git", "main"))))
    with pytest.raises(UserDataTooLargeError, match="shorten the command"):
        node_script(spec(config=replace(CONFIG, command="x" * MAX_USER_DATA_BYTES)))


@pytest.mark.parametrize("engine", ["torchrun", "ray", "slurm", "command"])
def test_the_text_is_python_whatever_the_job_says(engine: str, tmp_path: Path) -> None:
    command = """python - <<'EOF'\nprint("{braces} %s \\\\ ''' \\"\\"\\"")\nEOF"""
    text = node_script(
        spec(
            config=replace(CONFIG, engine=engine, command=command),
            secrets=NodeSecrets(TOKEN, {"A": "\"'''\\"}, {"B": "{x}\n%d"}),
            home=replace(AT, ca="-----BEGIN\n'''\n"),
        )
    )
    compile(text, "script", "exec")
    assert text.startswith("#!/usr/bin/env python3\n")
    with serving(whole(STANDIN)) as url:
        started(
            run(
                tmp_path / "node", text.replace(AT.agent_url, at(url).agent_url).replace(AT.agent_sha256, _sha(STANDIN))
            )
        )
    assert read_config(str(tmp_path / "node" / "agent.json")).command == command
    given = read_job_environment(str(tmp_path / "node" / "env.json"))
    assert (given.plain, given.secret) == ({"A": "\"'''\\"}, {"B": "{x}\n%d"})


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
