"""`stepfare demo` as a user runs it: it ends with a finished training and nothing left, whatever comes between."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import psutil
import pytest

from pricing.money import Usd
from router.ledger.entry import LedgerEntry, LedgerEntryKind, MachineUse
from router.showback.accounts import Showback
from router.showback.export import export_focus
from router.showback.focus.survey import check_file
from router.state.store import StateStore
from tests.support.busy import eventually, in_time, on_a_busy_machine
from tests.support.clouds import STEPFARE
from tests.support.repository import ran
from tests.support.training import checkpoints, losses, metrics

pytestmark = pytest.mark.slow

# What it may take, and after how long it is taken to hang.
LONGEST_S, HANGS_S = 120, 600


def _environment(home: Path, path: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STEPFARE_", "AWS_"))}
    return {**kept, "PATH": path, "HOME": str(home), "NO_COLOR": "1", "COLUMNS": "100"}


def _without_terraform() -> str:
    """The folders of this machine's PATH in which there is neither terraform nor tofu."""
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(f for f in folders if not any((Path(f) / name).exists() for name in ("terraform", "tofu")))


def _processes(folder: Path) -> list[str]:
    """What runs on this machine for the demo in that folder: nodes, whose folders lie in it, and commands."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(str(folder) in value for value in process.environ().values()):
                found.append(f"{process.pid} {' '.join(process.cmdline())}")
        except psutil.Error:
            continue
    return found


def _start(folder: Path, home: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(STEPFARE), "demo", "--dir", str(folder), *options],
        env=_environment(home, _without_terraform()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("engine", ["embedded", "terraform on the PATH"])
def test_the_demo(engine: str, tmp_path: Path) -> None:
    path, calls = _without_terraform(), tmp_path / "calls"
    if engine != "embedded":
        tools = tmp_path / "tools"
        tools.mkdir()
        shim = Path(sys.executable).with_name("stepfare-terraform")
        (tools / "terraform").write_text(f'#!/bin/sh\necho "$1" >>"{calls}"\nexec "{shim}" "$@"\n')
        (tools / "terraform").chmod(0o755)
        path = f"{tools}{os.pathsep}{path}"
    folder, begin = tmp_path / "the demo", time.monotonic()
    done = ran([str(STEPFARE), "demo", "--dir", str(folder)], env=_environment(tmp_path, path), timeout=HANGS_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert in_time(begin, LONGEST_S)
    assert done.stderr == ""
    spent = re.search(r"^  spent {7}\$(0\.\d{3,9}) by the ledger$", done.stdout, re.MULTILINE)
    assert spent is not None, done.stdout
    assert 0.001 < float(spent[1]) < 1.0  # 4.80 to 11.20 dollars an hour
    assert "trained     400 steps without a gap on 2 machines, on 4 gangs one after the other" in done.stdout
    assert "lost        0 steps that were saved" in done.stdout
    assert "the same    as uninterrupted: every loss and the last checkpoint, to the last bit" in done.stdout
    assert "left over   nothing" in done.stdout
    assert re.search(r"^  step 396/400 loss 1\.\d{4} step_s 0\.05\d$", done.stdout, re.MULTILINE)
    assert _processes(folder) == []
    found = losses(folder / "checkpoints")
    assert list(found) == list(range(1, 401))
    assert f"{found[1]:.4f} in step 1, {found[400]:.4f} in step 400" in done.stdout
    assert len({line["attempt"] for line in metrics(folder / "checkpoints")}) == 4
    status = subprocess.run(
        [str(STEPFARE), "status", "--all", "-o", "json"],
        env={**_environment(tmp_path, path), "STEPFARE_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(status.stdout)["spent_usd"] == spent[1]
    with StateStore.open(f"sqlite:///{folder / 'home' / 'state.db'}", now=datetime.now(UTC)) as store:
        metered = store.ledger.entries(kind=LedgerEntryKind.METERED)
        assert export_focus(store, tmp_path / "demo.csv", Showback(), "1.4").charges == len(metered)
    assert check_file(tmp_path / "demo.csv").counts == {}
    assert sorted(rank or 0 for rank in (r for _, r in {(e.attempt, e.rank) for e in metered})) == [0] * 4 + [1] * 4
    assert {entry.use for entry in metered} >= {MachineUse.STARTUP, MachineUse.WORK}
    assert sum(entry.steps for entry in metered) == 400
    again = len(metrics(folder / "checkpoints")) - 400
    # By what was said last, which on a busy machine was some time ago.
    assert sum(entry.lost_steps for entry in metered) == pytest.approx(again, abs=on_a_busy_machine(25))
    assert str(Usd.total(entry.usd for entry in metered)) == spent[1]
    # Which machine it was, what priced it, and what it would have cost on demand.
    assert len({entry.resource for entry in metered}) == 8
    assert "" not in {entry.resource for entry in metered} | {entry.price_source for entry in metered}
    for entry in metered:
        assert entry.on_demand_usd_per_hour is not None
        assert entry.usd_per_hour is not None
        assert entry.on_demand_usd_per_hour >= entry.usd_per_hour
    _finance_sees_the_ledger(done.stdout, metered)
    if engine == "embedded":
        assert not calls.exists()
    else:
        assert calls.read_text().split().count("apply") == 8  # one makes, one releases


def _finance_sees_the_ledger(printed: str, metered: Sequence[LedgerEntry]) -> None:
    """The demo ends with figures that are those of its entries, reckoned here another way."""

    def sum_of(*uses: MachineUse) -> Decimal:
        return Decimal(str(Usd.total(entry.usd for entry in metered if entry.use in uses)))

    def on_demand(entry: LedgerEntry) -> Decimal:
        assert entry.on_demand_usd_per_hour is not None
        return Decimal(str(entry.on_demand_usd_per_hour.over(entry.end - entry.start)))

    waste = {use: sum_of(use) for use in MachineUse if use is not MachineUse.WORK}
    total, instead = sum_of(*MachineUse), sum(map(on_demand, metered), Decimal(0))
    first = min(metered, key=lambda entry: entry.start).attempt
    restarts = sum(
        (
            on_demand(entry)
            for entry in metered
            if entry.use in (MachineUse.RESTART_LOST_WORK, MachineUse.FAILED_LAUNCH)
            or (entry.use is MachineUse.STARTUP and entry.attempt != first)
        ),
        Decimal(0),
    )
    amounts = (
        total,
        sum_of(MachineUse.WORK),
        sum(waste.values()),
        total * 1000 / 400,
        instead,
        instead - total - restarts,
    )
    (row,) = re.findall(r"^demo +letters +(.+)$", printed, re.MULTILINE)
    assert [float(word) for word in row.split()] == pytest.approx(list(map(float, amounts)), abs=0.0001)
    said = re.search(r"^  waste: (.+?)(?=\n  \w|\n\n)", printed, re.MULTILINE | re.DOTALL)
    assert said is not None
    kinds = dict(part.split() for part in " ".join(said[1].split()).split(", "))
    assert {name: float(usd) for name, usd in kinds.items()} == pytest.approx(
        {use.value: float(usd) for use, usd in waste.items() if usd}, abs=0.0001
    )


def test_the_new_folder_is_gone_afterwards(tmp_path: Path) -> None:
    environment = {**_environment(tmp_path, _without_terraform()), "TMPDIR": str(tmp_path)}
    done = ran([str(STEPFARE), "demo", "--steps", "20", "--calm"], env=environment, timeout=HANGS_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is removed; --keep leaves it" in done.stdout
    assert list(tmp_path.glob("stepfare-demo-*")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_in_the_middle_of_the_training_it_releases_what_runs(number: int, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    process = _start(folder, tmp_path, "--steps", "4000", "--calm")
    try:
        steps = folder / "checkpoints" / "metrics.jsonl"
        eventually(lambda: steps.exists() and steps.read_bytes().count(b"\n") >= 30, 60)
        assert _processes(folder)
        process.send_signal(number)
        said, _ = process.communicate(timeout=HANGS_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, said
    assert "$ stepfare destroy --all --yes" in said
    assert "1 released" in said
    assert _processes(folder) == []
    last = max(losses(folder / "checkpoints"))
    assert checkpoints(folder / "checkpoints")[-1] == f"step-{last:08d}.ckpt"  # saved on the way out


def test_interrupted_before_there_is_anything_to_release(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    process = _start(folder, tmp_path)
    try:
        assert process.stdout is not None
        line = ""
        while not line.startswith("$ stepfare prices"):
            line = process.stdout.readline()
            assert line or process.poll() is None
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert "destroy" not in said
    assert _processes(folder) == []


BREAKS = """\
from router.cli.main import main
from router.demo import stage
write_demo_files = stage.write_demo_files
def broken(*values):
    names = write_demo_files(*values)
    folder = values[0]
    job = folder / "job.yaml"
    job.write_text(job.read_text().replace("exec python -m router.demo.train", "echo no good >&2; exit 7;"))
    return names
stage.write_demo_files = broken
main()
"""


def test_a_training_that_fails_fails_the_demo(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    done = ran(
        [sys.executable, "-c", BREAKS, "demo", "--dir", str(folder)],
        env=_environment(tmp_path, _without_terraform()),
        timeout=HANGS_S,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the demo failed: `stepfare apply plan.json" in done.stderr
    assert "ended with exit code 5" in done.stderr
    assert f"{folder / 'home'}: logs/" in done.stderr
    assert re.search("failed: .*exit code 7", " ".join(done.stdout.split()))
    assert "] no good" in done.stdout
    assert _processes(folder) == []
