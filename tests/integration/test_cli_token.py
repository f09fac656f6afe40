"""Tokens on the command line, and what `serve` refuses to do: everything that decides who gets in."""

from __future__ import annotations

import http.client
import json
import logging
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from router.cli.console import ExitCode
from router.state.access_tokens import TokenKind
from router.state.audit import verify_chain
from router.state.store import StateStore
from tests.support.busy import eventually
from tests.support.command import run
from tests.support.console_access import PAGE, bearer, sign_in_console
from tests.support.forked import ForkedCommand

JSON = ("-o", "json")
CANARY = "a-canary-of-a-secret"
PUBLIC = "console: {hosts: [fare.example.com], %s}\n"
OIDC = PUBLIC % "oidc: {issuer: 'https://x.example.com', client_id: c, client_secret: %s, grants: {a: viewer}}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("STEPFARE_DEPLOY", raising=False)
    return tmp_path / "home"


@contextmanager
def opened(home: Path) -> Iterator[StateStore]:
    with StateStore.open(f"sqlite:///{home / 'state.db'}", now=datetime.now(UTC)) as store:
        yield store


def test_a_token_is_printed_once_and_alone(home: Path) -> None:
    made = run("token", "make", "ana", "--grant", "viewer:speech", "--grant", "finance", "--expires", "30d")
    assert made.exit_code == ExitCode.OK
    secret = made.stdout.removesuffix("\n")
    assert re.fullmatch(r"stepfare_[A-Za-z0-9_-]{43}", secret)
    assert secret not in made.stderr
    with opened(home) as store:
        found = store.access_tokens.find(secret, TokenKind.TOKEN, datetime.now(UTC))
        assert found is not None
        assert (found.subject, found.grants, found.scopes) == ("ana", ("finance", "viewer:speech"), ())
        assert timedelta(days=29) < found.expires_at - datetime.now(UTC) <= timedelta(days=30)
        entries = store.audit.entries()
        assert verify_chain(entries) is None
    assert [(entry.what, entry.details["name"]) for entry in entries] == [("make token", "ana")]
    secrets = (secret, secret.removeprefix("stepfare_"), found.digest)
    for words in (("token", "list"), ("token", "list", "-o", "json"), ("audit", "-o", "json"), ("audit",)):
        shown = run(*words)
        assert shown.exit_code == ExitCode.OK
        assert found.id in shown.output or words == ("audit",)
        assert not any(text in shown.output for text in secrets)
    for file in home.rglob("state.db*"):
        assert secret.encode() not in file.read_bytes()


def test_tokens_are_listed_and_revoked(home: Path) -> None:
    home.mkdir()
    assert run("token", "list").stdout == "there are no tokens\n"
    made = run(
        "token", "make", "ci", "--grant", "job_owner", "--scope", "quotes:make", "--note", "nightly", "-o", "json"
    )
    token: dict[str, Any] = json.loads(made.stdout)["token"]
    assert token["scopes"] == ["quotes:make"]
    table = run("token", "list").stdout
    for word in (token["id"], "job_owner", "quotes:make", "valid", "nightly"):
        assert word in table
    ended = run("token", "revoke", token["id"])
    assert (ended.exit_code, "is revoked since" in ended.stdout) == (ExitCode.OK, True)
    assert run("token", "revoke", token["id"]).stdout == ended.stdout
    (listed,) = json.loads(run("token", "list", "-o", "json").stdout)["tokens"]
    assert listed["state"] == "revoked"
    with opened(home) as store:
        assert [entry.what for entry in store.audit.entries()] == ["make token", "revoke token"]
        assert store.access_tokens.find(token["secret"], TokenKind.TOKEN, datetime.now(UTC)) is None
    missing = run("token", "revoke", "token-0")
    assert (missing.exit_code, "token list" in missing.stderr) == (ExitCode.FAILURE, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ana",), "--grant: a token without a role"),
        (("ana", "--grant", "viewr"), "did you mean viewer?"),
        (("ana", "--grant", "viewer:"), "names no team"),
        (("ana", "--grant", "viewer:a\x07b"), "cannot be shown"),
        (("ana", "--grant", "viewer", "--scope", "plan:read"), "did you mean plans:read?"),
        (("ana", "--grant", "viewer", "--expires", "367d"), "longer than 366d"),
        (("ana", "--grant", "viewer", "--expires", "0s"), "--expires"),
        (("ana", "--grant", "viewer", "--expires", "soon"), "--expires"),
        (("", "--grant", "viewer"), "NAME: is empty"),
        (("ana\r\nSet-Cookie: x", "--grant", "viewer"), "cannot be shown"),
        (("a" * 101, "--grant", "viewer"), "longer than 100 characters"),
    ],
)
def test_a_token_that_cannot_be_made_is_explained(home: Path, words: tuple[str, ...], message: str) -> None:
    refused = run("token", "make", *words)
    assert (refused.exit_code, refused.stdout) == (ExitCode.INVALID_INPUT, "")
    assert message in refused.stderr
    assert not (home / "state.db").exists()


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        ("", ("--host", "0.0.0.0"), "nobody could be told apart"),
        ("", ("--host", "::"), "nobody could be told apart"),
        ("", ("--host", "fare.example.com"), "nobody could be told apart"),
        ("", ("--host", "192.0.2.1", "--open-access"), "everybody would get in"),
        (PUBLIC % "tokens: true", ("--host", "0.0.0.0"), "in the clear"),
        (PUBLIC % "tokens: true", ("--host", "0.0.0.0", "--open-access"), "everybody would get in"),
        (PUBLIC % "behind_proxy: true, trusted_proxies: [10.0.0.5]", (), "nobody could be told apart"),
        (PUBLIC % "behind_proxy: true, trusted_proxies: [10.0.0.5]", ("--open-access",), "everybody would get in"),
        (PUBLIC % "tokens: true, behind_proxy: true", (), "names no proxy"),
        (PUBLIC % "tokens: true, trusted_proxies: [10.0.0.5]", (), "behind_proxy"),
        (PUBLIC % "tokens: true, certificate: /nowhere/tls.pem", (), "belong together"),
        (PUBLIC % "certificate: /nowhere/tls.pem, key: /nowhere/tls.key", (), "/nowhere/tls.pem"),
        (PUBLIC % "oidc: {issuer: 'http://login.example.com', client_id: c, grants: {a: viewer}}", (), "no https URL"),
        (PUBLIC % "oidc: {issuer: 'https://login.example.com', client_id: c, grants: {a: vieer}}", (), "viewer"),
        (PUBLIC % "oidc: {issuer: 'https://login.example.com', client_id: c, grants: {}}", (), "grants"),
        (OIDC % CANARY, (), "is no reference to a secret"),
        (OIDC % "'env:NONE'", (), "export NONE"),
        (OIDC % "'file:/nowhere/secret'", (), "/nowhere/secret"),
        (PUBLIC % "requests: 5", (), "requests"),
        (PUBLIC % "requests: 0/minute", (), "is no rate"),
        ("console: {hosts: 'https://fare.example.com'}\n", (), "is no name of a host"),
    ],
)
def test_serve_refuses_what_would_let_anybody_in(
    home: Path, settings: str, options: tuple[str, ...], message: str
) -> None:
    home.mkdir()
    (home / "deploy.yaml").write_text(settings, encoding="utf-8")
    refused = run("serve", "--port", "0", *options)
    assert refused.exit_code == ExitCode.INVALID_INPUT, refused.output
    assert message in refused.stderr
    assert CANARY not in refused.output
    assert "console" in refused.stderr or "--open-access" in refused.stderr


def test_no_secret_reaches_a_log_or_a_page(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with sign_in_console(tmp_path) as console:
        client, csrf = console.signed_in()
        secret, record = console.token("ci", ["admin"])
        session = client.cookies["stepfare_session"]
        answers = [
            client.get("/tonight", headers=PAGE),
            client.get("/login", headers=PAGE),
            client.get("/nowhere", headers={**PAGE, **bearer(secret)}),
            client.post("/deed", headers=PAGE),
            client.get(f"/login?link={secret}", headers=PAGE),
            client.post("/login", data={"token": f"{secret}x"}, headers=PAGE),
            console.client(raises=False).get("/fault", headers={**PAGE, **bearer(secret)}),
        ]
        audit = repr(console.context.store.audit.entries()) + repr(console.context.store.access_tokens.tokens())
        # The test's own client logs its requests.
        log = "\n".join(record.getMessage() for record in caplog.records if not record.name.startswith("httpx"))
        texts = [log, audit, *(f"{answer.headers}{answer.text}" for answer in answers)]
        for text in texts:
            assert secret not in text
            assert session not in text
        assert [csrf in answer.text for answer in answers][:2] == [True, False]
        assert record.digest not in "".join(answer.text for answer in answers)


def test_serve_prints_a_link_that_signs_the_operator_in_once(tmp_path: Path) -> None:
    environment = {"PATH": "", "HOME": str(tmp_path), "STEPFARE_HOME": str(tmp_path / "home")}
    out, err = tmp_path / "stdout", tmp_path / "stderr"
    command = ForkedCommand(("serve", "--port", "0"), environment=environment, stdout=out, stderr=err)
    try:
        eventually(lambda: "listening on" in _text(err), why="for serve to listen")
        found = re.search(r"http://127\.0\.0\.1:(\d+)(/login\?link=\S+)\n", _text(err))
        assert found is not None
        port, link = int(found[1]), found[2]
        assert _ask(port, "GET", "/tonight")[0] == 401
        status, headers, body = _ask(port, "GET", link)
        assert status == 200
        assert "Signed in" in body
        cookie = headers["Set-Cookie"].partition(";")[0]
        status, _, body = _ask(port, "GET", "/tonight", {"Cookie": cookie, "Accept": "text/html"})
        assert (status, "Sign out" in body) == (404, True)
        assert _ask(port, "GET", link)[0] == 401
        assert _ask(port, "GET", "/tonight", {"Cookie": cookie, "Host": "evil.example"})[0] == 421
        token = re.search(r'name="csrf_token" value="([^"]+)"', body)
        assert token is not None
        form = {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
        assert _ask(port, "POST", "/logout", form, urlencode({"csrf_token": "no"}))[0] == 403
        assert _ask(port, "POST", "/logout", form, urlencode({"csrf_token": token[1]}))[0] == 303
        assert _ask(port, "GET", "/tonight", {"Cookie": cookie})[0] == 401
        command.send_signal(signal.SIGTERM)
        assert command.wait() in (0, -signal.SIGTERM)
        assert cookie.partition("=")[2] not in _text(err)
        assert _text(out) == ""
    finally:
        command.kill()


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _ask(
    port: int, method: str, path: str, headers: dict[str, str] | None = None, body: str | None = None
) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()
