"""Whoever makes sandbox machines and whoever takes them back find the same folder that plays the cloud."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.app.controller import passed_on
from router.app.settings import Files, read_files


def test_it_lies_in_the_home_unless_somebody_says_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STEPFARE_CLOUDS", str(tmp_path / "none.yaml"))
    opened = read_files(Files(), {"PATH": "/bin"})
    assert opened.sandbox == tmp_path / "home" / "sandbox"
    assert passed_on(opened)["STEPFARE_SANDBOX"] == str(opened.sandbox)
    assert not opened.sandbox.exists()
    other = read_files(Files(), {"STEPFARE_SANDBOX": str(tmp_path / "cloud")})
    assert other.sandbox == tmp_path / "cloud"
    assert passed_on(other)["STEPFARE_SANDBOX"] == str(tmp_path / "cloud")
