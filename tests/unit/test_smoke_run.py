"""When a smoke run stops, and that it clears up however it ends. A script stands for stepfare and writes its calls."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from router.config.job_files import load_jobs, read_limits
from tests.smoke import run
from tests.smoke.__main__ import main
from tests.smoke.accounts import CLOUDS, DRY, REAL, Offer, job_text, limits_text, missing_in_deploy, smallest
from tests.smoke.notices import Account
from tests.smoke.protocol import Protocol, Verdict
from tests.smoke.run import Exit, Smoke, describe_quotas
from tests.smoke.secrets import Concealer

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
DEPLOY = {"coordinator": {"url": "https://here.example"}, "clouds": {"aws": {"checkpoint_url": "s3://bucket/x"}}}
OFFER = {
    "instance_type": "g4dn.xlarge",
    "accelerator": "T4",
    "accelerator_count": 1,
    "region": "us-east-1",
    "usd_per_hour": "0.18936",
    "provisionable": True,
}
# Answers by the first words of a command; what is not there ends well and says nothing.
ANSWERS: dict[str, dict[str, Any]] = {
    "doctor": {"out": json.dumps({"clouds": []})},
    "prices refresh": {"err": "stored x of 2026-11-30, 100 offers"},
    "offers": {"out": json.dumps({"offers": [OFFER]})},
    "plan": {"file": json.dumps({"lines": [{"cost_usd": "0.05"}]})},
    "apply plan.json --dry-run": {"err": "at risk up to $0.20\ndry run: nothing was made or written"},
    "sweep": {"out": "no orphans"},
}
SCRIPT = """#!{python}
import json, os, sys, time
words = " ".join(sys.argv[1:])
with open("calls", "a") as calls:
    calls.write(words + chr(10))
answers = json.load(open("answers"))
answer = answers.get(max((name for name in answers if words.startswith(name)), key=len, default=""), {{}})
if "file" in answer:
    open("plan.json", "w").write(answer["file"])
sys.stdout.write(answer.get("out", ""))
sys.stderr.write(answer.get("err", ""))
sys.stdout.flush()
time.sleep(answer.get("seconds", 0))
sys.exit(answer.get("code", 0))
"""


class Desk:
    """A run in a folder, with answers of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        script = folder / "stepfare"
        script.write_text(SCRIPT.format(python=sys.executable))
        script.chmod(0o755)
        monkeypatch.setattr(run, "STEPFARE", script)
        self.told: list[str] = []

    def smoke(self, answers: Mapping[str, Any] | None = None) -> Smoke:
        (self.folder / "answers").write_text(json.dumps({**ANSWERS, **(answers or {})}))
        protocol = Protocol(self.folder, "aws", False, Decimal(2), NOW, self.told.append)
        environment = {"PATH": os.environ["PATH"], "STEPFARE_HOME": str(self.folder / "home")}
        return Smoke(protocol, "aws", Account("aws"), environment, DEPLOY, None, DRY, poll_s=0.01, limit_s=30)

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    @property
    def record(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads((self.folder / "protocol.json").read_text())
        return found

    def failed(self) -> list[str]:
        return [check["step"] for check in self.record["checks"] if check["verdict"] == Verdict.FAILED]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def test_a_plan_over_the_budget_stops_before_anything_is_made(desk: Desk) -> None:
    dear = {"file": json.dumps({"lines": [{"cost_usd": "1.5"}, {"cost_usd": "0.51"}]})}
    assert desk.smoke({"plan": dear}).run() is Exit.OVER_BUDGET
    assert desk.failed() == ["budget"]
    assert not any(call.startswith("apply") for call in desk.calls)
    assert desk.calls[-2:] == ["destroy --all --yes", "sweep --cloud aws"]
    assert "$2.0100" in (desk.folder / "protocol.md").read_text()


def test_money_at_risk_over_the_budget_stops_before_anything_is_made(desk: Desk) -> None:
    refused = {"err": "refused: up to $13.41 is at risk, $2.00 is allowed", "code": 4}
    assert desk.smoke({"apply plan.json --dry-run": refused}).run() is Exit.OVER_BUDGET
    assert desk.failed() == ["apply --dry-run"]
    assert not any("--follow" in call for call in desk.calls)


def test_a_run_that_becomes_too_dear_is_stopped_and_destroyed(desk: Desk) -> None:
    class Dear(Smoke):
        def _gangs(self) -> list[dict[str, Any]]:
            if any("--follow" in call for call in desk.calls):
                self.protocol.usd = Decimal("2.01")
            return []

    smoke = desk.smoke({"apply plan.json --yes": {"seconds": 60}})
    smoke.__class__ = Dear
    assert smoke.run() is Exit.OVER_BUDGET
    assert desk.failed() == ["apply"]
    assert any("--max-cost 2" in call and "--follow" in call for call in desk.calls)
    assert "destroy --all --yes" in desk.calls
    assert desk.record["spent_usd"] == "2.01"


def test_refused_credentials_stop_it_at_once(desk: Desk) -> None:
    refused = {"code": 7, "out": json.dumps({"checks": [{"error": "no identity"}]})}
    assert desk.smoke({"doctor": refused}).run() is Exit.CREDENTIALS
    assert desk.failed() == ["doctor"]
    assert desk.calls[0].startswith("doctor --cloud aws")
    assert not any(call.startswith("prices") for call in desk.calls)


def test_a_deploy_file_without_a_store_is_not_begun_with(desk: Desk) -> None:
    smoke = desk.smoke()
    smoke.deploy = {"coordinator": {"url": "https://here.example"}}
    assert smoke.run() is Exit.FAILED
    assert desk.record["checks"][0]["seen"] == "clouds.aws.checkpoint_url"
    assert not (desk.folder / "calls").exists()


def test_what_sweep_finds_is_released_and_is_the_exit_code(desk: Desk) -> None:
    smoke = desk.smoke({"doctor": {"code": 5}, "sweep": {"out": "i-0123 is an orphan"}})
    assert smoke.run() is Exit.LEFT
    assert desk.calls[-2:] == ["sweep --cloud aws", "sweep --cloud aws --yes"]
    assert "MAY BE LEFT" in desk.record["ended"]


def test_ctrl_c_ends_in_destroy_and_sweep(desk: Desk) -> None:
    smoke = desk.smoke({"apply plan.json --yes": {"seconds": 60}})

    over = threading.Event()

    def interrupt() -> None:
        while not over.wait(0.02):
            calls = desk.calls if (desk.folder / "calls").exists() else []
            if any("--follow" in call for call in calls):
                os.kill(os.getpid(), signal.SIGINT)
                return

    thread = threading.Thread(target=interrupt)
    thread.start()
    code = smoke.run()
    over.set()
    thread.join()
    assert code is Exit.INTERRUPTED
    assert desk.failed() == ["interrupted"]
    assert [call.split()[0] for call in desk.calls[-2:]] == ["destroy", "sweep"]


def test_apply_that_ends_early_is_a_failed_check(desk: Desk) -> None:
    assert desk.smoke({"apply plan.json --yes": {"code": 5, "err": "no capacity"}}).run() is Exit.FAILED
    (row,) = [check for check in desk.record["checks"] if check["verdict"] == Verdict.FAILED]
    assert (row["step"], row["expected"]) == ("apply", "a machine that calls")
    assert "no capacity" in row["seen"]


def test_the_quotas_of_the_machine_are_named() -> None:
    def quota(name: str, amount: int, families: list[str], region: str = "us-east-1", market: str = "spot") -> Any:
        return {
            "name": name, "amount": amount, "families": families, "accelerator": None, "region": region,
            "market": market,
        }  # fmt: skip

    rows = [quota("G spot", 0, ["g4dn", "g5"]), quota("P spot", 8, ["p5"]), quota("G", 4, ["g4dn"], market="on_demand")]
    document = {"clouds": {"aws": {"quotas": [*rows, quota("far", 1, ["g4dn"], "us-west-2")]}}}
    offer = Offer("g4dn.xlarge", "T4", "us-east-1", "0.19")
    assert describe_quotas(document, "aws", offer, "spot") == "G spot 0 in us-east-1"
    assert describe_quotas(document, "aws", offer, "on_demand") == "G 4 in us-east-1"
    assert describe_quotas({}, "aws", offer, "spot") == ""


def test_the_smallest_machine_has_one_accelerator_and_costs_least() -> None:
    def row(name: str, count: int, usd: str, *, here: bool = True) -> dict[str, Any]:
        return {**OFFER, "instance_type": name, "accelerator_count": count, "usd_per_hour": usd, "provisionable": here}

    rows = [row("g4dn.12xlarge", 4, "0.1"), row("elsewhere", 1, "0.05", here=False), row("g5.xlarge", 1, "10.5")]
    assert smallest(rows) == Offer("g5.xlarge", "T4", "us-east-1", "10.5")
    assert smallest([*rows, row("g4dn.xlarge", 1, "9.8")]) == Offer("g4dn.xlarge", "T4", "us-east-1", "9.8")
    assert smallest(rows[:2]) is None


@pytest.mark.parametrize("market", ["spot", "on_demand"])
@pytest.mark.parametrize("length", [REAL, DRY])
def test_the_files_of_a_run_are_valid_and_fit_into_user_data(tmp_path: Path, market: str, length: Any) -> None:
    (tmp_path / "job.yaml").write_text(job_text(Offer("x", "T4", "r", "1"), market, length, ["aws/us-east-1"]))
    (tmp_path / "limits.yaml").write_text(limits_text("aws", Decimal(2)))
    (job,) = load_jobs([tmp_path / "job.yaml"], NOW).jobs
    assert job.run is not None
    assert job.steps == length.steps
    assert len(job.run.command) < 8_000
    assert read_limits(tmp_path / "limits.yaml").clouds == ("aws",)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_deploy_file_of_each_cloud_needs_its_store(cloud: str) -> None:
    whole: dict[str, Any] = {
        "coordinator": {"url": "u"},
        "clouds": {cloud: {"regions": {"r": {"checkpoint_url": "s"}}}},
    }
    assert missing_in_deploy(whole, cloud) == (["clouds.azure.ssh_public_key"] if cloud == "azure" else [])
    assert "coordinator.url" in missing_in_deploy({}, cloud)


def test_a_real_run_without_its_files_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["aws"], ["azure", "--deploy", str(tmp_path / "none")], ["aws", "--deploy", str(tmp_path / "none")]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
    assert "first-account.md" in capsys.readouterr().err


def test_a_protocol_survives_words_of_a_table(tmp_path: Path) -> None:
    protocol = Protocol(tmp_path, "gcp", True, Decimal(2), NOW, lambda _: None, Concealer({"s3cret": "X"}).conceal)
    protocol.add("plan", "a | b", Verdict.OK, "one\ntwo | s3cret", 1.26, "stepfare plan s3cret")
    protocol.add("quotas", "", Verdict.NOT_PLAYED, "no account")
    text = (tmp_path / "protocol.md").read_text()
    assert "| 1 | plan | a \\| b | **ok** | one two \\| X | 1 | 0.0000 |" in text
    assert "s3cret" not in text + (tmp_path / "protocol.json").read_text()
    assert yaml.safe_load((tmp_path / "protocol.json").read_text())["checks"][1]["verdict"] == "not played"
    assert protocol.is_fine
