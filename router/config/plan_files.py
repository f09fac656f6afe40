"""Read plans from disk."""

from __future__ import annotations

from pathlib import Path

from pricing.problems import InvalidInputError
from router.planning.plan import Plan
from router.planning.plan_json import plan_from_json


def read_plan(path: Path) -> Plan:
    """Return the plan in a file. InvalidInputError when it cannot be read, is no plan, or was edited."""
    return plan_from_json(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Return the text of a file. InvalidInputError when it cannot be read, or is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInputError.single(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise InvalidInputError.single("is not text", where=str(path)) from None
