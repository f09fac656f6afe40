"""Read plans, and fits of recorded spot availability, from disk."""

from __future__ import annotations

from pathlib import Path

from pricing.problems import InvalidInputError
from router.planning.plan import Plan
from router.planning.plan_json import plan_from_json
from router.spot.availability.fit import AvailabilityFit, fit_from_json


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


def read_fit(file: Path) -> AvailabilityFit | None:
    """Return the fit in the file, or None where none was stored. InvalidInputError for a file that is none of ours."""
    if not file.exists():
        return None
    try:
        return fit_from_json(read_text(file))
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidInputError.single(
            f"is no fit of spot availability: {error}", where=str(file), remedy="learn it again: stepfare quotes fit"
        ) from None
