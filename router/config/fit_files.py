"""Read the fit of recorded spot availability from disk."""

from __future__ import annotations

from pathlib import Path

from pricing.problems import InvalidInputError
from router.config.plan_files import read_text
from router.spot.availability.fit import AvailabilityFit, fit_from_json


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
