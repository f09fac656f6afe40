"""Ray in an environment of its own, made once for one content of engines/ray.txt and kept in the machine's folder for
temporary files: it is no dependency of this project."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from filelock import FileLock

from tests.support.repository import ROOT

REQUIREMENTS = ROOT / "tests" / "support" / "engines" / "ray.txt"
_TIME_LIMIT = 600


def ray_path() -> Path:
    """The folder to put before a PATH, with ``ray`` and its ``python3``. Made when it is missing: 300 MB, about 20
    seconds, from the package index."""
    content = REQUIREMENTS.read_bytes() + sys.version.encode()
    folder = Path(tempfile.gettempdir()) / f"stepfare-ray-{hashlib.sha256(content).hexdigest()[:12]}"
    with FileLock(f"{folder}.lock"):
        if not (folder / "ready").exists():
            venv.create(folder, with_pip=True, clear=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            subprocess.run([*pip, "-r", str(REQUIREMENTS)], check=True, timeout=_TIME_LIMIT)
            (folder / "ready").touch()
    return folder / "bin"
