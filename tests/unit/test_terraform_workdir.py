"""The run directory: whole files, nobody else's, and clear words when it cannot be written."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from terraform.errors import RunDirectoryError
from terraform.workdir import (
    PluginSources,
    check_directory,
    forget_secrets,
    forget_state,
    prepare,
    read_user_data,
    render_cli_config,
)
from tests.support.gangs import sandbox


def _files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_it_is_private_and_the_same_again_changes_nothing(tmp_path: Path) -> None:
    spec = sandbox(scripts={0: "canary"})
    prepare(tmp_path / "a" / "run", spec)
    first = _files(tmp_path / "a" / "run")
    assert {"main.tf.json", "terraform.tfvars.json", "terraform.tfrc", "module/main.tf"} <= set(first)
    assert not any(name.startswith(".") for name in first)
    assert stat.S_IMODE((tmp_path / "a" / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "run" / "secrets.auto.tfvars.json").stat().st_mode) == 0o600
    prepare(tmp_path / "a" / "run", spec)
    assert _files(tmp_path / "a" / "run") == first
    assert read_user_data(tmp_path / "a" / "run") == ("canary", "", "", "")
    check_directory(tmp_path / "a" / "run")


def test_the_module_stays_as_it_was(tmp_path: Path) -> None:
    """Machines are released by what made them, though a newer version lies in the package by then."""
    prepare(tmp_path / "run", sandbox())
    (tmp_path / "run" / "module" / "main.tf").write_text("# of an older version\n")
    prepare(tmp_path / "run", sandbox(count=2))
    assert (tmp_path / "run" / "module" / "main.tf").read_text() == "# of an older version\n"


def test_another_attempt_is_refused(tmp_path: Path) -> None:
    prepare(tmp_path / "run", sandbox("a-1"))
    with pytest.raises(RunDirectoryError, match="belongs to attempt a-1, not b-2"):
        prepare(tmp_path / "run", sandbox("b-2"))


def test_a_cloud_without_a_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="there is no module for sandbox"):
        prepare(tmp_path / "run", sandbox(), modules=tmp_path)
    assert not (tmp_path / "run").exists()


def test_secrets_can_be_removed(tmp_path: Path) -> None:
    prepare(tmp_path / "run", sandbox(scripts={0: "canary"}))
    forget_secrets(tmp_path / "run")
    forget_secrets(tmp_path / "run")
    assert read_user_data(tmp_path / "run") == ()
    assert not any(b"canary" in text for text in _files(tmp_path / "run").values())


def test_a_place_that_is_a_file_or_below_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunDirectoryError, match=r"cannot be written: (File exists|Not a directory)"):
            prepare(path, sandbox())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_the_right_to_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunDirectoryError, match="Permission denied"):
        prepare(tmp_path / "run", sandbox())
    tmp_path.chmod(0o700)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_the_old_files_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    spec = sandbox()
    prepare(tmp_path / "run", spec)
    before = _files(tmp_path / "run")

    def full(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunDirectoryError, match="no space left"):
        prepare(tmp_path / "run", replace(spec, disk_gib=300))
    assert _files(tmp_path / "run") == before


def test_a_module_that_is_copied_halfway_is_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*names: Any, **more: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("shutil.copytree", full)
        with pytest.raises(RunDirectoryError, match="no space left"):
            prepare(tmp_path / "run", sandbox())
    assert list((tmp_path / "run").iterdir()) == []
    prepare(tmp_path / "run", sandbox())
    assert (tmp_path / "run" / "module" / "main.tf").is_file()


def test_no_state_is_not_a_lost_state(tmp_path: Path) -> None:
    prepare(tmp_path / "run", sandbox())
    assert forget_state(tmp_path / "run") is None


def test_where_plugins_come_from() -> None:
    assert render_cli_config(PluginSources()) == "disable_checkpoint = true\n"
    assert render_cli_config(PluginSources(Path("/c"), Path('/m"x'))) == (
        'disable_checkpoint = true\nplugin_cache_dir = "/c"\n'
        "plugin_cache_may_break_dependency_lock_file = true\n"
        "provider_installation {\n"
        '  filesystem_mirror {\n    path = "/m\\"x"\n  }\n}\n'
    )
