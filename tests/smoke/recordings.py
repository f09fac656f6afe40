"""Makes tests of recordings: what `--record` kept becomes part of the suite.

    python -m tests.smoke.recordings FOLDER [NAME]

Copies those that can be replayed to tests/recorded/clouds/NAME (the folder's own name), after it has replayed each of
them. tests/integration/test_recorded_clouds.py replays all that lie there. Nothing is copied while one of them holds
what looks like a secret.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.smoke.secrets import Concealer
from tests.support.azure_estate import SUBSCRIPTION
from tests.support.clouds import ENDPOINTS, environment
from tests.support.repository import ROOT

KEPT = ROOT / "tests" / "recorded" / "clouds"
# Commands that only read, and need nothing of earlier ones.
REPLAYED = (("doctor",), ("prices", "refresh"), ("quotas",))
# A port at which nothing listens; as plain http it keeps the SDKs from looking for an identity.
_NOWHERE = "http://127.0.0.1:9"
_TIME_LIMIT = 600
# A whole cloud's prices are far more; `regions` in the clouds file makes them less.
_LARGEST = 5 * 2**20
_VOLATILE = re.compile(r"latency|clock|seconds|^took|digest|measured|^as_of$|began|^now$|fastest|_at$")


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replay beside its recording: exit codes, what both printed, and what was asked and not recorded."""

    codes: tuple[int, int]
    outs: tuple[Any, Any]
    missing: tuple[str, ...]
    err: str

    @property
    def is_same(self) -> bool:
        """Return whether the command did what it did then."""
        return self.codes[0] == self.codes[1] and self.outs[0] == self.outs[1] and not self.missing


def can_be_replayed(document: Mapping[str, Any]) -> bool:
    """Return whether a recording is of a command that stands for itself."""
    words = tuple(document["command"]["words"])
    return any(words[: len(named)] == named for named in REPLAYED) and "--cloud" in words


def replay(file: Path) -> Replayed:
    """Run a recording's command on its answers, in a home of its own."""
    document = json.loads(file.read_text(encoding="utf-8"))
    words = document["command"]["words"]
    cloud = words[words.index("--cloud") + 1]
    with tempfile.TemporaryDirectory(prefix="stepfare-replay-") as folder:
        home = Path(folder)
        (home / "clouds.yaml").write_text(json.dumps({"clouds": {cloud: _settings(cloud)}}), encoding="utf-8")
        own = {"STEPFARE_CLOUDS": str(home / "clouds.yaml"), "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
        done = subprocess.run(
            [sys.executable, "-m", "tests.smoke.replay", str(file)],
            env={**environment(home), **own, "COLUMNS": "160"},
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIME_LIMIT,
            check=False,
        )
    missing = tuple(line for line in done.stderr.splitlines() if line.startswith("not recorded: "))
    outs = without_chance(document["command"]["out"]), without_chance(done.stdout)
    return Replayed((document["command"]["code"], done.returncode), outs, missing, done.stderr)


def _settings(cloud: str) -> Mapping[str, Any]:
    options = {"gcp": {"project": "project-0"}, "azure": {"subscription": SUBSCRIPTION}}.get(cloud, {})
    # AWS has keys that open nothing, and its own addresses.
    return {"endpoints": {} if cloud == "aws" else dict.fromkeys(ENDPOINTS[cloud], _NOWHERE), "options": options}


def without_chance(out: str) -> Any:
    """Return what was printed without what differs each time: times, digests, who one is."""
    try:
        return _stable(json.loads(out))
    except ValueError:
        text = re.sub(r"\b[0-9a-f]{12}\b", "DIGEST", Concealer().conceal(out))
        text = re.sub(r" *\d+(?:\.\d+)? ?(?:ms|s|min)\b", " TIME", text)
        # A time of ten seconds makes its column wider than one of three.
        return re.sub(" +", " ", text)


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _stable(v) for k, v in value.items() if not _VOLATILE.search(k) and k != "identity"}
    return [_stable(one) for one in value] if isinstance(value, list) else value


def secrets_in(text: str) -> bool:
    """Return whether a text has what a recording must not have."""
    # In JSON a quotation mark inside a text is escaped, so that each text is looked at by itself.
    return any(Concealer().conceal(one) != one for one in _texts(json.loads(text)))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _texts(one)]


def main(arguments: list[str], kept: Path = KEPT) -> int:
    """Check, replay and copy; 1 if one is not as it was."""
    folder = Path(arguments[0]).absolute()
    target = kept / (arguments[1] if len(arguments) > 1 else folder.name)
    files = sorted(folder.glob("*.json"))
    for file in files:
        if secrets_in(file.read_text(encoding="utf-8")):
            print(f"{file.name}: holds what looks like a secret; nothing was copied")
            return 1
    chosen = [file for file in files if can_be_replayed(json.loads(file.read_text(encoding="utf-8")))]
    for file in [file for file in files if file not in chosen]:
        print(f"{file.name}: not a test: its command needs what others made")
    different = 0
    for file in chosen:
        if (size := file.stat().st_size) > _LARGEST:
            print(f"{file.name}: not a test: {size / 2**20:.0f} MiB are too large for a repository")
            continue
        replayed = replay(file)
        if replayed.is_same:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target / file.name)
            print(f"{file.name}: replayed, and copied to {target}")
        else:
            different += 1
            print(f"{file.name}: replays otherwise, exit codes {replayed.codes}; not copied\n{replayed.err[-2000:]}")
    return 1 if different or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
