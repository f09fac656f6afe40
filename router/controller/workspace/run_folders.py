"""List run directories and find their owner."""

from __future__ import annotations

import json
from pathlib import Path

from terraform.render import VALUES

_TAG = "stepfare_state"


def run_directories(runs: Path) -> tuple[Path, ...]:
    """Return the run directories by name, without those that a restore left half written."""
    try:
        return tuple(sorted(path for path in runs.iterdir() if path.is_dir() and not path.name.startswith(".")))
    except OSError:
        return ()


def state_id_of(directory: Path) -> str:
    """Return the id of the state that made a run directory; "" where its files do not say."""
    try:
        tags = json.loads((directory / VALUES).read_text(encoding="utf-8"))["tags"]
        return str(tags[_TAG])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
