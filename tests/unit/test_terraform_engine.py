"""Which engine runs, and what is said when none can. Engines here are scripts that answer ``version``."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

import terraform
from terraform import engine as module
from terraform.engine import EngineKind, find_engine
from terraform.errors import EngineMissingError, EngineTooOldError


def _engine(folder: Path, name: str, answer: str, code: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{answer}'\nexit {code}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without the extra ``embedded``."""
    monkeypatch.setattr(module, "_script", lambda: None)


@pytest.mark.usefixtures("alone")
def test_terraform_before_tofu_and_it_says_which(tmp_path: Path) -> None:
    _engine(tmp_path, "tofu", "OpenTofu v1.9.1")
    found = find_engine(None, str(tmp_path))
    assert (found.kind, found.version) == (EngineKind.TOFU, "1.9.1")
    assert str(found) == f"OpenTofu 1.9.1 ({tmp_path / 'tofu'})"
    path = _engine(tmp_path, "terraform", "Terraform v1.11.4\non linux_amd64")
    found = find_engine(None, str(tmp_path))
    assert (found.path, found.kind, found.version, found.passed_over) == (path, EngineKind.TERRAFORM, "1.11.4", ())


@pytest.mark.usefixtures("alone")
def test_an_engine_is_what_it_says_it_is(tmp_path: Path) -> None:
    _engine(tmp_path, "terraform", "OpenTofu v1.8.0-rc1")
    assert find_engine(None, str(tmp_path)).kind is EngineKind.TOFU


@pytest.mark.usefixtures("alone")
def test_old_and_broken_ones_on_the_path_are_passed_over_visibly(tmp_path: Path) -> None:
    _engine(tmp_path, "terraform", "Terraform v1.5.7")
    _engine(tmp_path, "tofu", "OpenTofu v1.6.0")
    found = find_engine(None, str(tmp_path))
    assert found.kind is EngineKind.TOFU
    assert len(found.passed_over) == 1
    assert "Terraform 1.5.7; 1.6 or newer is needed" in found.passed_over[0]
    with pytest.raises(EngineTooOldError, match=r"1\.5\.7") as refused:
        find_engine(str(tmp_path / "terraform"), str(tmp_path))
    assert "install terraform or tofu" in refused.value.remedy


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("answer", "code", "kind"),
    [("Terraform v1.2.0", 0, EngineTooOldError), ("hello", 0, EngineMissingError), ("x", 3, EngineMissingError)],
)
def test_only_useless_ones_is_an_error_that_names_them(
    tmp_path: Path, answer: str, code: int, kind: type[Exception]
) -> None:
    path = _engine(tmp_path, "terraform", answer, code)
    with pytest.raises(kind, match="no Terraform engine to run") as refused:
        find_engine(None, str(tmp_path))
    assert str(path) in str(refused.value)


@pytest.mark.usefixtures("alone")
def test_none_at_all_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(EngineMissingError) as refused:
        find_engine(None, str(tmp_path))
    assert "stepfare[embedded]" in refused.value.remedy


@pytest.mark.usefixtures("alone")
def test_a_configured_engine_is_taken_or_refused_never_replaced(tmp_path: Path) -> None:
    _engine(tmp_path / "bin", "terraform", "Terraform v1.9.0")
    named = _engine(tmp_path / "other", "tf-1.7", "Terraform v1.7.2")
    assert find_engine(named, str(tmp_path / "bin")).version == "1.7.2"
    for missing in (tmp_path / "nothing", tmp_path):
        with pytest.raises(EngineMissingError, match="is not an executable file"):
            find_engine(missing, str(tmp_path / "bin"))


@pytest.mark.usefixtures("alone")
def test_this_package_is_not_taken_for_the_binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder ``terraform`` lies where Python is started; relative entries of a PATH would find what lies there."""
    top = Path(str(terraform.__file__)).parents[1]
    with pytest.raises(EngineMissingError):
        find_engine(None, str(top))
    _engine(tmp_path, "terraform", "Terraform v1.9.0")
    monkeypatch.chdir(tmp_path)
    for path in (".", "", f"{os.pathsep}."):
        with pytest.raises(EngineMissingError):
            find_engine(None, path)


def test_without_the_library_the_script_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EngineMissingError):
        find_engine(None, str(Path(sys.executable).with_name("nowhere")))
