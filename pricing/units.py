"""Units that are easily confused: GB is 1e9 bytes (tariffs), GiB 2**30 bytes (sizes); counts, digits, moments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

BYTES_PER_GB = 1_000_000_000
BYTES_PER_GIB = 1 << 30


def to_digits(figure: float) -> float:
    """Round to 12 significant digits.

    Mathematical libraries differ in the last bits, which then choose no plan.
    """
    return float(f"{figure:.12g}")


def to_percent(share: float) -> str:
    """Return a share in per cent with the digits that it has, such as ``95%`` or ``99.9%``."""
    return f"{round(100 * share, 4):g}%"


def gib_to_bytes(gib: float | Decimal) -> int:
    """Return the whole bytes in ``gib`` GiB, rounded half to even."""
    return round(Decimal(str(gib)) * BYTES_PER_GIB)


def gb_to_bytes(gb: float | Decimal) -> int:
    """Return the whole bytes in ``gb`` GB, rounded half to even."""
    return round(Decimal(str(gb)) * BYTES_PER_GB)


def hours(duration: timedelta) -> float:
    """Return a duration in hours."""
    return duration / timedelta(hours=1)


def format_count(number: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun, such as ``1 gang``, ``3 gangs`` or ``3 entries``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def format_utc(moment: datetime) -> str:
    """Return a moment in UTC as a machine reads it, such as ``2026-11-21T18:00:00Z``."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse_utc(text: object) -> datetime | None:
    """Parse a moment as a machine writes it (ISO 8601 with its zone) into UTC; None where it is none."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.utcoffset() is not None else None
