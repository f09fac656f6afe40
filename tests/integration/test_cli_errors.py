"""Wrong calls of all commands are answered in one voice: what is wrong where, what to do, exit code 2, nothing else."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from router.cli.commands import TABLE
from router.cli.console import ExitCode
from tests.support.command import run

WRONG = """\
validate nowhere.yaml
validate bad.yaml
validate
plan nowhere.yaml
plan bad.yaml --now yesterday
plan --nothing
plan show plan.json
plan diff plan.json plan.json
plan check plan.json
plan approve plan.json
plan what-if plan.json
explain plan.json a
estimate bad.yaml
quote bad.yaml --by never
quotes show zzzz
backtest nowhere.yaml
apply nowhere.json
status nobody
logs nobody
watch --policy nothing
destroy
destroy nobody
sweep --cloud mars
sweep --state mine
checkpoint list nowhere://x
data remove
data remove s3://nothing
drill kill-node nobody
showback --month soon
showback --group-by planet
ledger list --kind gold
ledger add nowhere.yaml
ledger close 2026-99
ledger restore nowhere.gz
ledger verify --archive nowhere.gz
ledger check nowhere.csv
ledger export nov.txt
ledger nothing
bills import nowhere.csv
bills show zz
bills remove zz --reason x
budget set lots --all
budget set 5
token make x --grant king
approvals set nowhere.yaml
prices diff a b
prices use zz
prices history --since forever
offers --accelerator Z9
quotas --cloud mars
doctor --cloud mars
state restore nowhere.gz
schema nothing
completion tcsh
import sky nowhere.yaml
import slurm nowhere.sbatch
import slurm bad.yaml
import k8s bad.yaml
profile bad.yaml
nothing
"""
# Where it is, as a compiler says it; then "error:", the field, what is wrong; the lines below say what to do.
SHAPE = re.compile(r"(?:(?P<where>[^\n:]+(?::\d+){0,2}): )?error: (?P<what>[^\n]+)(?P<remedy>(?:\n    \S[^\n]*)*)")
HELPS = re.compile(r"such as|e\.g\.|there are|none of|did you mean")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STEPFARE_CLOUDS", str(tmp_path / "clouds.yaml"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("name: [\n", encoding="utf-8")
    (tmp_path / "plan.json").write_text("{}", encoding="utf-8")


@pytest.mark.parametrize("words", WRONG.splitlines())
@pytest.mark.usefixtures("folder")
def test_wrong_calls_are_answered_in_one_voice(words: str) -> None:
    refused = run(*shlex.split(words))
    said = refused.stderr.rstrip("\n")
    assert isinstance(refused.exception, SystemExit), repr(refused.exception)
    assert (refused.exit_code, refused.stdout) == (ExitCode.INVALID_INPUT, ""), said
    found = SHAPE.fullmatch(said)
    assert found is not None, said
    what = found["what"]
    field = re.match(r"(?:--[\w-]+|[A-Z]+)(?:(?:, | or )--[\w-]+)*: ", what)
    sentence = what.removeprefix(field[0] if field else "")
    assert not sentence.endswith("."), said
    assert re.match(r"[a-z'\"\d-]|URL|YAML", sentence), said
    assert found["remedy"] or HELPS.search(what), said


def test_they_are_of_every_group_of_commands() -> None:
    groups = {name.split()[0] for name in TABLE.commands if " " in name}
    assert groups <= {line.split()[0] for line in WRONG.splitlines()}
