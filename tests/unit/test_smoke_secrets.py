"""Recordings of a smoke run: a planted secret is in none of them, whatever the way by which it came there."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest
import requests

from tests.smoke.recorder import Recording, SecretLeftError, recording
from tests.smoke.recordings import secrets_in
from tests.smoke.replay import Answers, replaying
from tests.smoke.secrets import Concealer
from tests.support.service import in_thread

SECRET = "pl4nted/Secret+of=an account&4711"
ACCOUNT = "123456789012"
ENVIRONMENT = {"AWS_SECRET_ACCESS_KEY": SECRET, "SSH_AUTH_SOCK": "/tmp/agent.sock", "MY_TOKEN_FILE": "/etc/token-file"}


class Echo:
    """Answers with what it was sent, packed, and says it in headers too."""

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        sent = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        told = {"sent": sent.decode(), "query": environ["QUERY_STRING"], "SecretAccessKey": "other-secret-0815"}
        body = gzip.compress(json.dumps(told).encode())
        headers = [("Content-Type", "application/json"), ("Content-Encoding", "gzip"), ("X-Amz-Security-Token", SECRET)]
        start_response("200 OK", [*headers, ("Content-Length", str(len(body)))])
        return [body]


def kept_of(*calls: dict[str, Any], environment: dict[str, str] | None = None) -> str:
    """The recording of calls to the echo; each got its answer whole."""
    kept = Recording(Concealer.of_environment(ENVIRONMENT if environment is None else environment))
    with in_thread(Echo()) as url, recording(kept):
        for call in calls:
            path = call.pop("path", "/")
            answer = requests.request(call.pop("method", "POST"), f"{url}{path}", timeout=30, **call)
            assert answer.json()["SecretAccessKey"] == "other-secret-0815"
    return kept.text({"words": ["doctor"], "code": 0, "out": f"as {SECRET}"})


WAYS: dict[str, dict[str, Any]] = {
    "header": {"headers": {"Authorization": f"Bearer {quote(SECRET)}", "X-Api-Key": quote(SECRET)}},
    "query": {"path": f"/things?name=a&X-Amz-Signature=abcdef0123&v={quote(SECRET, safe='')}"},
    "json": {"json": {"deep": [{"client_secret": "unknown-to-all", "text": SECRET}]}},
    "form": {"data": {"Action": "Describe", "x": SECRET}},
    "xml": {"data": f"<a><SecretAccessKey>unknown-to-all</SecretAccessKey><b>{SECRET}</b></a>"},
    "base64": {"data": base64.b64encode(SECRET.encode())},
    "key": {"data": "-----BEGIN PRIVATE KEY-----\nunknown-to-all\n-----END PRIVATE KEY-----"},
    "token": {"json": {"access_token": "unknown-to-all", "x": "eyJhbGciOiJub25lIn0.eyJ1bmtub3duLXRvLWFsbA.sig"}},
    "script": {"json": {"userData": "unknown-to-all"}},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_planted_secret_is_never_kept(way: str) -> None:
    text = kept_of(dict(WAYS[way]))
    forms = (SECRET, quote(SECRET, safe=""), quote(SECRET), base64.b64encode(SECRET.encode()).decode())
    unknown = ("other-secret-0815", "unknown-to-all", "eyJhbGciOiJub25lIn0", "abcdef0123")
    assert [word for word in (*forms, *unknown) if word in text or word in json.dumps(json.loads(text))] == []
    assert json.loads(text)["interactions"][0]["response"]["status"]["code"] == 200
    assert not secrets_in(text)


def test_names_of_accounts_are_replaced_and_the_rest_stays() -> None:
    arn, person = (f"arn:aws:iam::{ACCOUNT}:{kind}" for kind in ("role/trainer", "user/ada"))
    rest = {"InstanceType": "g4dn.xlarge", "price": "0.526", "id": "00000000-1111-2222-3333-444444444444"}
    subscription = "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/train"
    text = kept_of(
        {"json": {"arn": arn, "at": subscription, "by": "ada@example.com", "as": person, **rest}}, environment={}
    )
    sent = json.loads(json.loads(text)["interactions"][0]["request"]["body"])
    assert sent == {
        "arn": "arn:aws:iam::000000000000:role/trainer",
        "at": "/subscriptions/REMOVED-GUID/resourceGroups/train",
        "by": "removed@example.invalid",
        "as": "arn:aws:iam::000000000000:user/REMOVED",
        **rest,
    }


def test_an_account_that_was_seen_once_is_replaced_in_what_the_command_printed() -> None:
    kept = Recording(Concealer.of_environment({}))
    with in_thread(Echo()) as url, recording(kept):
        requests.post(f"{url}/compute/v1/projects/our-project-7/regions", timeout=30)
        requests.post(url, data=f"<Account>{ACCOUNT}</Account>", timeout=30)
    printed = json.dumps({"identity": "app 7 of tenant 8", "text": f"(account {ACCOUNT}), project our-project-7"})
    out = json.loads(json.loads(kept.text({"out": printed}))["command"]["out"])
    assert out == {"identity": "REMOVED", "text": "(account 000000000000), project project-0"}


@pytest.mark.parametrize("path", ["/token", "/tenant/oauth2/v2.0/token"])
def test_nothing_is_kept_where_tokens_are_made(path: str) -> None:
    document = json.loads(kept_of({"path": path, "data": "grant"}))
    assert (document["interactions"], document["left_out"]) == ([], 1)


def test_a_recording_with_a_secret_is_not_written() -> None:
    class Careless(Concealer):
        def conceal(self, text: str) -> str:
            return text

    kept = Recording(Careless({SECRET: "REMOVED"}))
    with pytest.raises(SecretLeftError):
        kept.text({"out": SECRET})


def test_variables_that_name_places_are_no_secrets() -> None:
    known = Concealer.of_environment(ENVIRONMENT).known
    assert set(known) == {SECRET}


def test_a_replay_gives_the_recorded_answers_in_their_order_and_names_what_is_missing() -> None:
    kept = Recording(Concealer.of_environment({}))
    with in_thread(Echo()) as url, recording(kept):
        there = [requests.get(f"{url}/a?at=2026-11-30T21:00:00Z", timeout=30).json()["query"], url]
    answers = Answers(json.loads(kept.text({})))
    with replaying(answers):
        again = requests.get("http://127.0.0.1:9/a?at=2027-01-01T00:00:00Z", timeout=30)
        other = requests.get("http://127.0.0.1:9/b", timeout=30)
    assert again.json()["query"] == there[0]
    assert other.status_code == 599
    assert answers.missing == ["GET /b"]
