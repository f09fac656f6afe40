"""The Terraform of docs/accounts/aws-interruptions.tf.json, less what is newer than 3.39, through the real binary of
hashicorp/aws 3.39.0 to a moto server: what it makes is what stepfare reads."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from pricing.book_file import embedded_book
from providers.caller import Caller
from providers.registry import open_notices
from providers.session import QUEUE_OPTION, Session
from terraform.engine import find_engine
from tests.support.aws_service import make_app
from tests.support.aws_service_session import NOW, NOW_TEXT, settings, somebody
from tests.support.repository import ROOT
from tests.support.service import CALL_LIMIT_S, in_thread
from tests.support.terraform_real_aws import VERSION, mirror, needs_real_aws
from tests.support.terraform_runs import needs_engine

pytestmark = [needs_engine, needs_real_aws, pytest.mark.slow]
SERVICES = ("cloudwatchevents", "sqs", "sts", "iam")


def _older(url: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        (ROOT / "docs" / "accounts" / "aws-interruptions.tf.json").read_text(encoding="utf-8")
    )
    content["terraform"]["required_providers"]["aws"]["version"] = VERSION
    for queue in content["resource"]["aws_sqs_queue"].values():
        del queue["sqs_managed_sse_enabled"]
    skipped = dict.fromkeys(
        ("skip_credentials_validation", "skip_metadata_api_check", "skip_requesting_account_id"), True
    )
    provider = {"region": "us-east-1", "endpoints": dict.fromkeys(SERVICES, url), **skipped}
    return {**content, "provider": {"aws": provider}}


def test_what_it_makes_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    somebody(monkeypatch)
    (tmp_path / "rc").write_text(f'provider_installation {{ filesystem_mirror {{ path = "{mirror()}" }} }}\n')
    environment = {**os.environ, "TF_CLI_CONFIG_FILE": str(tmp_path / "rc"), "TF_IN_AUTOMATION": "1"}
    engine = find_engine(None, environment["PATH"])

    def terraform(*arguments: str) -> str:
        command = [str(engine.path), *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True, timeout=240
        ).stdout

    with in_thread(make_app(regions=1, now=NOW_TEXT, history_rows=0)) as url:
        (tmp_path / "main.tf.json").write_text(json.dumps(_older(url)), encoding="utf-8")
        terraform("init", "-input=false", "-no-color")
        terraform("apply", "-input=false", "-no-color", "-auto-approve")
        queue = json.loads(terraform("output", "-json"))["interruption_queue"]["value"]
        bridge: Any = botocore.session.Session().create_client("events", "us-east-1", endpoint_url=url)
        detail = json.dumps({"instance-id": "i-0a", "instance-action": "stop"})
        subject = "EC2 Spot Instance Interruption Warning"
        bridge.put_events(Entries=[{"Source": "aws.ec2", "DetailType": subject, "Detail": detail, "Time": NOW}])
        made = replace(settings(url), options={QUEUE_OPTION: queue})
        opened = open_notices("aws", Session(made, embedded_book(), NOW, Caller("aws", CALL_LIMIT_S)))
        assert opened is not None
        (letter,) = opened.receive(0).letters
    (notice,) = letter.notices
    assert (notice.machine_id, notice.id) == ("i-0a", "stop-2026-11-21T18:02:00Z")
