"""The demo's files are what the commands read, and what a training left is looked at closely."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from router.cli.demo import DemoCommandError, DemoCommands, SideCommand
from router.config.job_files import load_jobs, load_limits
from router.config.settings_files import load_clouds
from router.demo.stage import NotTrainedError, count_gangs, read_step_count, read_training_result, write_demo_files
from tests.support.clouds import environment
from tests.support.command import NOW, run
from tests.support.training import train


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A demo's folder with a name that shells and YAML do not like."""
    folder = tmp_path / 'a "demo": #1'
    write_demo_files(folder, 120, 7)
    return folder


def test_the_files_are_read_and_the_job_is_filled_in(stage: Path) -> None:
    assert set(load_clouds(stage / "clouds.yaml", named=True).documents) == {"sandbox"}
    assert load_limits(stage / "limits.yaml").limits.clouds == ("sandbox",)
    (job,) = load_jobs([str(stage / "job.yaml")], datetime.fromisoformat(NOW)).jobs
    assert job.run is not None
    assert job.steps == 120
    assert dict(job.run.env) == {"CHECKPOINTS": str(stage.resolve() / "checkpoints")}
    assert "--steps 120 --step-seconds 0.05 --seed 7" in job.run.command
    assert '"$CHECKPOINTS"' in job.run.command
    assert "$steps" not in job.run.command


def test_the_plan_wants_two_machines_where_there_are_two(stage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(stage / "home"))
    monkeypatch.setenv("STEPFARE_CLOUDS", str(stage / "clouds.yaml"))
    assert run("prices", "refresh", "--cloud", "sandbox", "--now", NOW).exit_code == 0
    words = ("--book", "sandbox", "--limits", stage / "limits.yaml", "--now", NOW, "-o", "json")
    planned = run("plan", stage / "job.yaml", *words)
    assert planned.exit_code == 0, planned.stderr
    (line,) = json.loads(planned.stdout)["lines"]
    assert (line["cloud"], line["zone"], line["machines"]) == ("sandbox", "sandbox-east-b", 2)


def test_what_a_training_left(tmp_path: Path) -> None:
    place = tmp_path / "checkpoints"
    train("--steps", 20, "--checkpoint-dir", place)
    found = read_training_result(tmp_path, 20)
    assert (found.steps, found.again, found.checkpoint.name) == (20, 0, "step-00000020.ckpt")
    assert found.first_loss > found.last_loss > 0
    with pytest.raises(NotTrainedError, match="has no step 21"):
        read_training_result(tmp_path, 30)
    file = place / "metrics.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines, *lines[5:7]]) + "\n")
    assert read_training_result(tmp_path, 20).again == 2
    file.write_text("\n".join(lines[:9] + lines[10:]) + "\n")
    with pytest.raises(NotTrainedError, match="has no step 10"):
        read_training_result(tmp_path, 20)
    file.write_text("\n".join(lines) + "\n")
    found.checkpoint.unlink()
    with pytest.raises(NotTrainedError, match=r"there is no .*step-00000020\.ckpt"):
        read_training_result(tmp_path, 20)
    file.write_text("{}\n")
    with pytest.raises(NotTrainedError, match=r"metrics\.jsonl"):
        read_training_result(tmp_path, 20)
    file.unlink()
    with pytest.raises(NotTrainedError, match=r"metrics\.jsonl"):
        read_training_result(tmp_path, 20)


def test_how_far_a_training_is_and_by_how_many_gangs(tmp_path: Path) -> None:
    assert (read_step_count(tmp_path), count_gangs(tmp_path)) == (0, 0)
    file = tmp_path / "checkpoints" / "metrics.jsonl"
    file.parent.mkdir()
    file.write_text("")
    assert (read_step_count(tmp_path), count_gangs(tmp_path)) == (0, 0)
    lines = [json.dumps({"step": step, "attempt": attempt}) for step, attempt in ((1, "a"), (2, "a"), (2, "b"))]
    for count, gangs in ((1, 1), (2, 1), (3, 2)):
        file.write_text("".join(f"{line}\n" for line in lines[:count]))
        assert (read_step_count(tmp_path), count_gangs(tmp_path)) == (min(count, 2), gangs)
    file.write_text(lines[0] + "\n" + lines[1][:9])  # as it is while a line is written
    assert (read_step_count(tmp_path), count_gangs(tmp_path)) == (0, 0)


def test_a_command_is_shown_with_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = DemoCommands(tmp_path, environment(tmp_path))
    commands.show("stepfare --version", SideCommand("stepfare schema job", lambda: True))
    said = capsys.readouterr().out
    assert "$ stepfare --version\n" in said
    assert "\n  stepfare 0." in said
    assert "$ stepfare schema job\n" in said
    assert '"title": "Job"' in said or '"$schema"' in said
    assert json.loads(commands.ask("stepfare schema job"))


@pytest.mark.slow
def test_a_command_that_fails_is_shown_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = DemoCommands(tmp_path, environment(tmp_path))
    for call in (commands.show, commands.ask):
        with pytest.raises(DemoCommandError, match=r"`stepfare plan none\.yaml` ended with exit code 2"):
            call("stepfare plan none.yaml")
        said = capsys.readouterr()
        assert "none.yaml" in said.out.replace("$ stepfare plan none.yaml", "") + said.err


@pytest.mark.slow
def test_a_side_command_that_fails_ends_the_command(tmp_path: Path) -> None:
    """Otherwise a training that waits for the interruption would wait in vain."""
    commands = DemoCommands(tmp_path, environment(tmp_path))
    fails = SideCommand("stepfare plan none.yaml", lambda: True)
    with pytest.raises(DemoCommandError, match=r"`stepfare plan none\.yaml` ended with exit code 2"):
        commands.show("stepfare serve --port 0 --open-access", fails)


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    refused = run("demo", "--dir", tmp_path)
    assert refused.exit_code == 2
    assert "is not an empty folder" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
