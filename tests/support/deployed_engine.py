"""Places at which a test makes Terraform, or stepfare itself, wait, so that a fault comes at exactly that moment.

A hold is a file. The first who comes to a place whose file is there takes it (renames it), and waits until it is gone;
nobody else is held there. Terraform is held by a script that stands for it on the PATH; stepfare by `held_command`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from terraform.engine import find_engine

_SCRIPT = """\
#!/bin/sh
# Terraform, made to wait at: init, plan, apply, destroy (before it), and after-apply, after-destroy.
[ "$1" = version ] && {{ echo 'Terraform v{version}'; exit; }}
step=$1
for word in "$@"; do
    case $word in -destroy*) step=destroy ;; esac
done
hold() {{
    mv '{holds}'/"$1" '{holds}'/"$1.taken" 2>/dev/null || return 0
    while [ -e '{holds}'/"$1.taken" ]; do sleep 0.02; done
}}
if [ -e '{holds}/one-at-a-time' ]; then
    count=$#
    while [ "$count" -gt 0 ]; do
        case $1 in -parallelism=*) set -- "$@" -parallelism=1 ;; *) set -- "$@" "$1" ;; esac
        shift
        count=$((count - 1))
    done
fi
hold "$step"
[ -e '{holds}'/"after-$step" ] || exec '{engine}' "$@"
'{engine}' "$@"
code=$?
hold "after-$step"
exit $code
"""


@dataclass(frozen=True)
class Holds:
    """The holds of one site."""

    folder: Path

    def put(self, *places: str) -> None:
        self.folder.mkdir(exist_ok=True)
        for place in places:
            (self.folder / place).touch()

    def reached(self, place: str) -> bool:
        """Whether somebody waits there."""
        return (self.folder / f"{place}.taken").exists()

    def free_all(self) -> None:
        # Whoever takes a hold meanwhile renames it.
        while self.folder.is_dir() and (files := list(self.folder.iterdir())):
            for file in files:
                file.unlink(missing_ok=True)


def wait_while_held(folder: Path, place: str) -> None:
    taken = folder / f"{place}.taken"
    try:
        (folder / place).rename(taken)
    except FileNotFoundError:
        return
    while taken.exists():
        time.sleep(0.02)


def write_engine(folder: Path, holds: Holds, real: Path | None) -> None:
    """The script, as `terraform` in a folder for the PATH; ``real`` runs behind it, by default the embedded one."""
    engine = find_engine(real, os.defpath)
    folder.mkdir()
    script = folder / "terraform"
    script.write_text(_SCRIPT.format(version=engine.version, holds=holds.folder, engine=engine.path))
    script.chmod(0o755)
