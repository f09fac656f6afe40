"""The deploy file's words about messages, metrics and the queue: secrets stay in the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing.problems import InvalidInputError
from router.config.settings_files import load_deploy
from router.deploy.cloud_settings import CloudDeploy
from router.deploy.deploy_settings import Deploy
from router.deploy.notify_settings import EventKind, NotifyEntry, resolve_reference

CANARY = "canary-51c0aa"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(text: str) -> Deploy:
    Path("deploy.yaml").write_text(text, encoding="utf-8")
    return load_deploy(Path("deploy.yaml"), named=True)


def refused(text: str) -> str:
    with pytest.raises(InvalidInputError) as caught:
        read(text)
    return str(caught.value)


def test_left_out_nobody_is_told() -> None:
    assert read("").notify == read("notify:\n").notify == NotifyEntry()
    assert (Deploy().notify.urls, set(Deploy().notify.events)) == ((), set(EventKind))
    assert Deploy().coordinator.metrics_token is None


def test_addresses_are_looked_up() -> None:
    notify = read("notify: {urls: [env:SLACK_URL, env:MAIL], events: late}").notify
    assert notify.events == (EventKind.LATE,)
    assert notify.addresses({"SLACK_URL": "slack://x", "MAIL": " mailto://y\n"}) == ("slack://x", "mailto://y")
    with pytest.raises(InvalidInputError, match=r"notify.urls\[1\].*MAIL"):
        notify.addresses({"SLACK_URL": CANARY, "MAIL": ""})


@pytest.mark.parametrize("url", [f"slack://{CANARY}/b/c", f"env:{CANARY}", "env:", f"env:A B{CANARY}"])
def test_an_address_in_the_file_is_refused_and_not_shown(url: str) -> None:
    text = refused(f"notify: {{urls: ['{url}']}}")
    assert "env:NAME" in text
    assert CANARY not in text
    text = refused(f"coordinator: {{metrics_token: '{url}'}}")
    assert CANARY not in text


def test_what_can_be_told_of_is_named() -> None:
    assert "failed" in refused("notify: {events: [failure]}")


def test_a_token_is_looked_up() -> None:
    assert resolve_reference("env:T", {"T": "t-1"}, "coordinator.metrics_token") == "t-1"


@pytest.mark.parametrize(
    "url", ["https://sqs.us-east-1.amazonaws.com/123456789012/stepfare-notices", "http://127.0.0.1:4566/123456789012/q"]
)
def test_queues(url: str) -> None:
    assert read(f"clouds: {{aws: {{interruption_queue: '{url}'}}}}").clouds["aws"].interruption_queue == url


@pytest.mark.parametrize("url", ["q", "https://sqs.us-east-1.amazonaws.com/1/q", "https://h/123456789012/q.fifo"])
def test_what_is_no_queue(url: str) -> None:
    assert "SQS" in refused(f"clouds: {{aws: {{interruption_queue: '{url}'}}}}")


def test_only_one_cloud_has_queues() -> None:
    text = refused("clouds: {gcp: {interruption_queue: 'https://sqs.us-east-1.amazonaws.com/123456789012/q'}}")
    assert "only aws" in text


def test_queues_by_region() -> None:
    url = "https://sqs.eu-west-1.amazonaws.com/123456789012/stepfare-q"
    aws = read(f"clouds: {{aws: {{regions: {{eu-west-1: {{interruption_queue: '{url}'}}, us-east-1: {{}}}}}}}}").clouds[
        "aws"
    ]
    assert aws.queues == {"eu-west-1": url}
    assert CloudDeploy().queues == {}
    text = refused(f"clouds: {{gcp: {{regions: {{r: {{interruption_queue: '{url}'}}}}}}}}")
    assert "only aws" in text
