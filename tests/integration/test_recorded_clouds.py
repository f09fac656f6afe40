"""Recordings of smoke runs, replayed offline, give what they gave when the clouds answered.

`python -m tests.smoke.recordings FOLDER` puts them there. Those named `stand-in-...` are of the services of the tests.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.smoke.recordings import KEPT, main, replay, secrets_in

FILES = sorted(KEPT.rglob("*.json"))


def _name(file: Path) -> str:
    return f"{file.parent.name}-{file.stem}"


def test_there_is_one_of_each_cloud() -> None:
    words = [json.loads(file.read_text(encoding="utf-8"))["command"]["words"] for file in FILES]
    assert {"aws", "gcp", "azure"} <= {one[one.index("--cloud") + 1] for one in words}


@pytest.mark.parametrize("file", FILES, ids=_name)
def test_a_recording_holds_no_secret(file: Path) -> None:
    assert not secrets_in(file.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=_name)
def test_a_recording_replays_as_it_was(file: Path) -> None:
    replayed = replay(file)
    assert replayed.missing == ()
    assert replayed.codes[0] == replayed.codes[1], replayed.err
    assert replayed.outs[0] == replayed.outs[1]
    assert replayed.is_same


@pytest.mark.slow
def test_a_recording_of_another_answer_replays_otherwise_and_is_not_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A permission that the cloud refuses now is seen: exit code and report change."""
    (file,) = [file for file in FILES if "gcp" in file.name]
    document = json.loads(file.read_text(encoding="utf-8"))
    (asked,) = [one for one in document["interactions"] if one["request"]["uri"].partition("?")[0].endswith("/regions")]
    asked["response"]["status"] = {"code": 403, "message": "Forbidden"}
    asked["response"]["body"]["string"] = json.dumps(
        {"error": {"code": 403, "message": "no", "errors": [{"reason": "forbidden"}]}}
    )
    changed = tmp_path / "rec"
    changed.mkdir()
    (changed / file.name).write_text(json.dumps(document), encoding="utf-8")
    assert main([str(changed)], tmp_path / "kept") == 1
    assert "replays otherwise, exit codes (0, 7)" in capsys.readouterr().out
    assert not (tmp_path / "kept").exists()


def test_nothing_is_taken_while_one_holds_a_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file, *_) = FILES
    document = json.loads(file.read_text(encoding="utf-8"))
    document["interactions"][0]["response"]["body"]["string"] = '{"access_token": "abc"}'
    (tmp_path / file.name).write_text(json.dumps(document), encoding="utf-8")
    assert main([str(tmp_path)], tmp_path / "kept") == 1
    assert "looks like a secret" in capsys.readouterr().out
    assert not (tmp_path / "kept").exists()
