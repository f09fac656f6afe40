"""A smoke run, step by step: the commands that a user types, and after each a check of what they did.

The first check that fails ends it. However it ends, everything is destroyed and swept for.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from pathlib import Path
from typing import Any

import yaml

from router.controller.report.report import build_status_report
from router.deploy.deploy_settings import Timeouts
from router.render.status_text import status_document
from router.state.store import StateStore
from tests.smoke.accounts import JOB, Length, Offer, deploy_document, job_text, limits_text, missing_in_deploy, smallest
from tests.smoke.notices import Account, NotPlayedError, Target, give_notice, take
from tests.smoke.protocol import Protocol, Verdict

STEPFARE = Path(sys.executable).with_name("stepfare")
# The longest that one command that makes or releases machines may take.
_COMMAND_S = 2400.0
_STOP_S = 300.0
_SWEEPS = 5


class Exit(IntEnum):
    """Exit codes of `python -m tests.smoke`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    OVER_BUDGET = 4
    LEFT = 5
    CREDENTIALS = 7
    INTERRUPTED = 130


class StopError(Exception):
    """A check failed; the run goes on with destroy and sweep."""

    def __init__(self, code: Exit = Exit.FAILED) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(frozen=True, slots=True)
class Said:
    """A command that has ended."""

    code: int
    out: str
    err: str
    seconds: float
    command: str

    @property
    def json(self) -> Any:
        """Return its standard output as JSON; None where it is none."""
        try:
            return json.loads(self.out)
        except ValueError:
            return None

    @property
    def last(self) -> str:
        """Return its last words."""
        lines = [line for line in (self.out + "\n" + self.err).splitlines() if line.strip()]
        return " / ".join(lines[-3:])

    def line(self, words: str) -> str:
        """Return the first line that has these words; its last words where none has."""
        return next((line.strip() for line in (self.out + "\n" + self.err).splitlines() if words in line), self.last)


@dataclass
class Smoke:
    """One run. ``record``: the folder for recordings of what the clouds answered; None: nothing is kept."""

    protocol: Protocol
    cloud: str
    account: Account
    environment: Mapping[str, str]
    deploy: Mapping[str, Any]
    clouds: Path | None
    length: Length
    market: str = "spot"
    regions: Sequence[str] = ()
    record: Path | None = None
    limit_s: float = 3600.0
    poll_s: float = 5.0
    _follow: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _attempt: str = field(default="", init=False)
    _saved: int = field(default=0, init=False)
    _moved: bool = field(default=False, init=False)

    @property
    def folder(self) -> Path:
        return self.protocol.folder

    def run(self) -> Exit:
        """Play all steps, then destroy and sweep; the exit code."""
        code, steps = Exit.OK, (self._look, self._plan, self._make, self._interrupt, self._finish)
        ended = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            for step in steps:
                step()
        except StopError as stop:
            code = stop.code
        except KeyboardInterrupt:
            self.protocol.add("interrupted", "", Verdict.FAILED, "Ctrl-C: everything is destroyed now")
            code = Exit.INTERRUPTED
        except Exception as error:
            self.protocol.add("smoke", "the program itself works", Verdict.FAILED, f"{type(error).__name__}: {error}")
            code = Exit.FAILED
        # From here on Ctrl-C must not leave machines.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            is_clean = self._clear_up()
        finally:
            signal.signal(signal.SIGINT, before)
            signal.signal(signal.SIGTERM, ended)
        code = code if is_clean else Exit.LEFT
        words = {Exit.OK: "every check is fine", Exit.LEFT: "SOMETHING MAY BE LEFT: look at the cloud's console now"}
        self.protocol.end(f"{words.get(code, f'stopped: {code.name.lower()}')}; exit code {int(code)}")
        return code

    # The steps.
    def _look(self) -> None:
        missing = missing_in_deploy(self.deploy, self.cloud)
        self._check("files", "a deploy file with what machines need", not missing, ", ".join(missing) or "all is there")
        document = deploy_document(self.deploy)
        (self.folder / "deploy.yaml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")

        said = self._stepfare("doctor", "--cloud", self.cloud, "-o", "json")
        problems = [row for row in _rows(said.json, "checks") if row.get("error")]
        what = _first_words(problems, "error") if problems else "identity, calls and clock are fine"
        code = Exit.CREDENTIALS if said.code == 7 else Exit.FAILED
        self._check("doctor", "exit code 0", said.code == 0, f"{said.code}: {what}", said, code)

        said = self._stepfare("prices", "refresh", "--cloud", self.cloud, "--history-days", "0")
        # 5: a region is not enabled, or did not answer; the others are there.
        self._check(
            "prices refresh", "exit code 0 or 5", said.code in (0, 5), f"{said.code}: {said.line('stored ')}", said
        )

        words = ["--provisionable", "--market", self.market, "--sort", "hour", "--limit", "0", "-o", "json"]
        for region in self.regions:
            words += ["--region", region]
        said = self._stepfare("offers", "--cloud", self.cloud, *words)
        offer = smallest((said.json or {}).get("offers", []))
        what = "none" if offer is None else f"{offer.instance_type} ({offer.accelerator}) in {offer.region}"
        price = "" if offer is None else f" at ${offer.usd_per_hour}/h"
        self._check("offers", f"a {self.market} machine with one accelerator", offer is not None, what + price, said)
        assert offer is not None
        said = self._stepfare("quotas", "--cloud", self.cloud, "-o", "json")
        # 5: the cloud does not state them all. What is allowed is known for sure when the machine is asked for.
        seen = f"{said.code}: {describe_quotas(said.json or {}, self.cloud, offer, self.market) or 'none for it'}"
        self._check("quotas", "exit code 0 or 5", said.code in (0, 5), seen, said)
        self._write_files(offer)
        said = self._stepfare("validate", "job.yaml", "limits.yaml")
        self._check("validate", "exit code 0", said.code == 0, said.last, said)

    def _write_files(self, offer: Offer) -> None:
        places = [f"{self.cloud}/{region}" for region in self.regions] or [self.cloud]
        (self.folder / "job.yaml").write_text(job_text(offer, self.market, self.length, places), encoding="utf-8")
        (self.folder / "limits.yaml").write_text(limits_text(self.cloud, self.protocol.budget), encoding="utf-8")

    def _plan(self) -> None:
        """Plan the job and check its cost; nothing is made."""
        said = self._stepfare("plan", "job.yaml", "--limits", "limits.yaml", "--out", "plan.json")
        self._check("plan", "exit code 0", said.code == 0, f"{said.code}: {said.line('jobs placed')}", said)
        planned = planned_usd(json.loads((self.folder / "plan.json").read_text(encoding="utf-8")))
        budget = self.protocol.budget
        self._check("budget", f"at most ${budget} planned", planned <= budget, f"${planned:.4f}", code=Exit.OVER_BUDGET)
        said = self._stepfare("apply", "plan.json", "--dry-run", "--max-cost", str(budget))
        is_dry = said.code == 0 and "nothing was made" in said.err
        code = Exit.OVER_BUDGET if said.code == 4 else Exit.FAILED
        expected = f"at most ${budget} at risk, nothing made"
        self._check("apply --dry-run", expected, is_dry, said.line("at risk"), said, code)

    def _make(self) -> None:
        """Machines, their checks, and first steps."""
        words = ("apply", "plan.json", "--yes", "--follow", "--max-cost", str(self.protocol.budget))
        self._follow = self._start(words)
        met = self._wait("apply", "a machine that calls", lambda: self._gang("met_at"), " ".join(words))
        self._attempt = met["attempt"]
        checks = self._journal("preflight")
        unfit = [f"{one['name']}: {one['problem']}" for entry in checks for one in entry["checks"] if one["problem"]]
        fit = [f"{one['name']}: {one['what']}" for entry in checks for one in entry["checks"]]
        self._check(
            "preflight", "the machine is fit", bool(checks) and not unfit, "; ".join(unfit or fit) or "no report"
        )
        self._saved = self._wait("train", "steps, and a checkpoint that is stored", lambda: self._node("saved_step"))

    def _interrupt(self) -> None:
        """A notice by hand, and the job goes on elsewhere from what it saved."""
        gang = self._gangs()[-1]
        node = gang["nodes"][0]
        target = Target(self._attempt, node["machine"], gang["region"], node["market"])
        began = time.monotonic()
        try:
            what = give_notice(self.account, target)
            self.protocol.add("notice", "the cloud takes the call", Verdict.OK, what, time.monotonic() - began)
        except NotPlayedError as error:
            self.protocol.add("notice", "the cloud announces an interruption", Verdict.NOT_PLAYED, str(error))
            try:
                what = take(self.account, target)
            except NotPlayedError as reason:
                self.protocol.add("migrate", "goes on elsewhere", Verdict.NOT_PLAYED, str(reason))
                return
            self.protocol.add("loss", "the machine is ended by hand", Verdict.OK, what)
        else:
            self._wait("hear", "the agent reports the notice", self._heard)
        moved = self._wait("migrate", "another machine, after the first is gone", self._successor)
        first, place = moved["first_step"], f"{moved['region']}, {moved['nodes'][0]['zone'] or 'no zone'}"
        self._check("resume", f"from step {self._saved} or later", first >= self._saved, f"step {first} in {place}")
        self._moved = True
        self._wait("train again", f"steps beyond {first}", lambda: self._step_beyond(first))

    def _finish(self) -> None:
        assert self._follow is not None
        self._wait("finish", "apply --follow ends", self._follow_end)
        code = self._follow_code()
        self._check("apply's end", "exit code 0", code == 0, self._followed().strip().splitlines()[-1])
        said = self._stepfare("status", "--all", "-o", "json")
        gangs = (said.json or {}).get("gangs", [])
        over = [gang["state"] for gang in gangs]
        fine = over[-1:] == ["finished"] and all(gang["gone_at"] for gang in gangs)
        self._check("status", "the last gang is finished, no machine is there", fine, ", ".join(over), said)
        said = self._stepfare("logs", JOB)
        resumed = "resumed from step" in said.out or not self._moved
        is_right = f"counted {self.length.sum}" in said.out and resumed
        self._check("logs", f"counted {self.length.sum}, from the checkpoint", is_right, said.last, said)
        said = self._stepfare("ledger", "list", "--kind", "metered", "--limit", "0", "-o", "json")
        machines = {row["attempt"] for row in (said.json or {}).get("entries", []) if row["what"] == "machine"}
        self._gangs()
        self._check("ledger", "each gang's time is metered", len(machines) >= 1, f"{len(machines)} gangs", said)
        within = self.protocol.usd <= self.protocol.budget
        self._check(
            "cost", f"at most ${self.protocol.budget}", within, f"${self.protocol.usd:.4f}", code=Exit.OVER_BUDGET
        )

    def _clear_up(self) -> bool:
        """Destroy everything and look for what is left; whether nothing is."""
        if self._follow is not None and self._follow.poll() is None:
            self._follow.send_signal(signal.SIGINT)
            try:
                self._follow.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._follow.kill()
        if not (self.folder / "deploy.yaml").exists():
            return True
        said = self._stepfare("destroy", "--all", "--yes")
        destroyed = said.code == 0
        self._gangs()
        self._note("destroy", "exit code 0", destroyed, f"{said.code}: {said.last}", said)
        said, clean = self._sweep()
        tries = 1
        while not clean and tries < _SWEEPS:
            # What was ended a moment ago is listed for minutes.
            time.sleep(12 * self.poll_s)
            said, clean = self._sweep()
            tries += 1
        self._note("sweep", "no orphans", clean, f"{said.code}: {said.last}", said)
        if clean:
            return destroyed
        said = self._stepfare("sweep", "--cloud", self.cloud, "--yes")
        self._note("sweep --yes", "what is left is released", said.code == 0, f"{said.code}: {said.last}", said)
        return False

    def _sweep(self) -> tuple[Said, bool]:
        """Look for what is left; the command, and whether it found nothing."""
        said = self._stepfare("sweep", "--cloud", self.cloud)
        return said, said.code == 0 and said.out.startswith("no orphans")

    # How they look.
    def _gang(self, known: str) -> dict[str, Any] | None:
        """Return the newest gang once that is known of it."""
        gangs = self._gangs()
        return gangs[-1] if gangs and gangs[-1][known] else None

    def _gangs(self) -> list[dict[str, Any]]:
        """Return all gangs as `status --all -o json` does, the newest last, and note what they cost.

        It is asked all the time, and a process for each look would keep a small machine from its work.
        """
        if not self._database.exists():
            return []
        with self._state() as store:
            now = datetime.now(UTC)
            report = status_document(build_status_report(store, [], now, Timeouts(), everything=True))
        found = json.loads(json.dumps(report))
        self.protocol.usd = Decimal(found["spent_usd"])
        return sorted(found["gangs"], key=lambda gang: str(gang["created_at"]))

    def _node(self, known: str) -> int:
        """Return the largest of that figure that a machine of the newest gang reported; 0 before any did."""
        gangs = self._gangs()
        return max((node[known] or 0 for node in gangs[-1]["nodes"]), default=0) if gangs else 0

    def _successor(self) -> dict[str, Any] | None:
        gangs = {gang["attempt"]: gang for gang in self._gangs()}
        after = [gang for gang in gangs.values() if gang["resumes"] == self._attempt and gang["met_at"]]
        return after[-1] if after and gangs[self._attempt]["gone_at"] else None

    def _step_beyond(self, step: int) -> int:
        """Return the step that the newest gang has reached beyond this one; 0 while there is none."""
        reached = max(self._node("step"), self._gangs()[-1]["last_step"] or 0)
        return reached if reached > step else 0

    def _journal(self, what: str) -> list[Mapping[str, Any]]:
        """Return what the journal has of the first gang: no command shows it."""
        with self._state() as store:
            return [entry.details for entry in store.journal.entries(self._attempt) if entry.what == what]

    def _heard(self) -> str:
        with self._state() as store:
            notices = store.notices.find(self._attempt, datetime(2000, 1, 1, tzinfo=UTC))
        return "; ".join(f"{one.source}: {one.what}" for one in notices)

    @property
    def _database(self) -> Path:
        return Path(self.environment["STEPFARE_HOME"]) / "state.db"

    def _state(self) -> StateStore:
        return StateStore.open(f"sqlite:///{self._database}", now=datetime.now(UTC))

    def _follow_code(self) -> int | None:
        return None if self._follow is None else self._follow.poll()

    def _follow_end(self) -> str:
        self._gangs()
        return "" if self._follow_code() is None else f"exit code {self._follow_code()}"

    def _followed(self) -> str:
        return (self.folder / "follow.log").read_text(encoding="utf-8", errors="replace")

    def _wait(self, step: str, expected: str, find: Callable[[], Any], command: str = "") -> Any:
        """Wait until something is found; a check fails when the run ends before, is too dear or takes too long."""
        began = time.monotonic()
        while not (found := find()):
            ended = step != "finish" and self._follow_code() is not None
            late, dear = time.monotonic() - began > self.limit_s, self.protocol.usd > self.protocol.budget
            if ended or late or dear:
                why = "apply --follow has ended" if ended else "too dear" if dear else "too late"
                code = Exit.OVER_BUDGET if dear else Exit.FAILED
                self._note(step, expected, False, f"{why}: {self._followed()[-400:]}", None, began, command)
                raise StopError(code)
            time.sleep(self.poll_s)
        self._note(step, expected, True, _described(found), None, began, command)
        return found

    def _check(
        self, step: str, expected: str, fine: bool, seen: str, said: Said | None = None, code: Exit = Exit.FAILED
    ) -> None:
        self._note(step, expected, fine, seen, said)
        if not fine:
            raise StopError(code)

    def _note(
        self,
        step: str,
        expected: str,
        fine: bool,
        seen: str,
        said: Said | None = None,
        began: float | None = None,
        command: str = "",
    ) -> None:
        seconds = said.seconds if said else time.monotonic() - began if began else 0.0
        verdict = Verdict.OK if fine else Verdict.FAILED
        shown = said.command if said else f"stepfare {command}" if command else ""
        self.protocol.add(step, expected, verdict, seen, seconds, shown)

    def _command(self, words: Sequence[str]) -> list[str]:
        if self.record is None:
            return [str(STEPFARE), *words]
        return [sys.executable, "-m", "tests.smoke.recorder", str(self.record), *words]

    def _environment(self) -> dict[str, str]:
        own = {"STEPFARE_DEPLOY": str(self.folder / "deploy.yaml"), "NO_COLOR": "1", "COLUMNS": "160"}
        clouds = {"STEPFARE_CLOUDS": str(self.clouds)} if self.clouds else {}
        return {**self.environment, **own, **clouds}

    def _stepfare(self, *words: str) -> Said:
        """Run a command to its end, in the folder of the run."""
        began, command = time.monotonic(), f"stepfare {' '.join(words)}"
        try:
            done = subprocess.run(
                self._command(words), capture_output=True, text=True, timeout=_COMMAND_S, check=False, **self._apart()
            )
        except subprocess.TimeoutExpired:
            return Said(124, "", f"no end within {_COMMAND_S:.0f} s", time.monotonic() - began, command)
        return Said(done.returncode, done.stdout, done.stderr, time.monotonic() - began, command)

    def _start(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "follow.log").open("wb") as log:
            return subprocess.Popen(self._command(words), stdout=log, stderr=log, **self._apart())

    def _apart(self) -> dict[str, Any]:
        """Return how a command runs: in the folder of the run, without a terminal, out of reach of Ctrl-C."""
        # Ctrl-C is for this program, which then destroys in order.
        own = {"cwd": self.folder, "env": self._environment(), "stdin": subprocess.DEVNULL}
        return {**own, "start_new_session": True}


def planned_usd(plan: Mapping[str, Any]) -> Decimal:
    """Return what the lines of a plan are expected to cost."""
    return sum((Decimal(str(line["cost_usd"])) for line in plan["lines"]), Decimal(0))


def describe_quotas(document: Mapping[str, Any], cloud: str, offer: Offer, market: str) -> str:
    """Return the quotas that a machine of the offer uses, where it is offered."""
    rows = document.get("clouds", {}).get(cloud, {}).get("quotas", [])
    used = [
        row
        for row in rows
        if row["region"] == offer.region
        and row["market"] in (market, None)
        and (row["accelerator"] == offer.accelerator or any(offer.instance_type.startswith(f) for f in row["families"]))
    ]
    return ", ".join(f"{row['name']} {row['amount']} in {row['region']}" for row in used)


def _described(found: Any) -> str:
    if isinstance(found, dict):
        return f"{found['attempt']} in {found['cloud']}/{found['region']}"
    return f"step {found}" if type(found) is int else found if isinstance(found, str) else "seen"


def _rows(document: Any, name: str) -> list[dict[str, Any]]:
    if isinstance(document, list):
        return [row for one in document for row in _rows(one, name)]
    if not isinstance(document, dict):
        return []
    own = document.get(name)
    return [*(own if isinstance(own, list) else []), *(row for one in document.values() for row in _rows(one, name))]


def _first_words(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    return "; ".join(re.sub(r"\s+", " ", str(row[name])) for row in rows[:3])
