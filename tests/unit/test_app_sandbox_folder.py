"""Whoever makes sandbox machines and whoever takes them back find the same folder that plays the cloud."""

from __future__ import annotations

from pathlib import Path

import pytest

from router.app.controller import terraform_environment
from router.app.settings import read_settings


def test_it_lies_in_the_home_unless_somebody_says_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STEPFARE_CLOUDS", str(tmp_path / "none.yaml"))
    opened = read_settings({"PATH": "/bin"})
    assert opened.sandbox == tmp_path / "home" / "sandbox"
    assert terraform_environment(opened)["STEPFARE_SANDBOX"] == str(opened.sandbox)
    assert not opened.sandbox.exists()
    other = read_settings({"STEPFARE_SANDBOX": str(tmp_path / "cloud")})
    assert other.sandbox == tmp_path / "cloud"
    assert terraform_environment(other)["STEPFARE_SANDBOX"] == str(tmp_path / "cloud")
