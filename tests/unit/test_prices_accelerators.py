"""``stepfare prices accelerators`` lists what speed estimates rest on, and says what is not known."""

from __future__ import annotations

import json
import os

from tests.support.forked import run_forked


def said(*options: str) -> str:
    done = run_forked(("prices", "accelerators", *options), environment=dict(os.environ))
    assert done.returncode == 0
    return str(done.stdout)


def test_what_is_missing_is_listed() -> None:
    table = said()
    assert "H100-PCIe" in table
    missing = json.loads(said("--missing", "-o", "json"))
    assert missing["absent"] == []
    assert all(row["missing"] for row in missing["accelerators"])
    assert "TPU-v5p" not in {row["accelerator"] for row in missing["accelerators"]}
