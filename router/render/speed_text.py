"""Write on what the speed of a gang rests, how wide its interval is, and what to measure first. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import MappingProxyType

from router.planning.document.plan_usage import GangSpeed, PointToMeasure
from router.quotes.quote import Somewhere
from router.render.tables import format_usd

#: Words for the evidence for a speed.
EVIDENCE_WORDS = MappingProxyType(
    {
        "measured": "measured",
        "learned": "learned from earlier runs",
        "published": "like published runs",
        "shape": "from the shape alone",
    }
)


def describe_speed(speed: GangSpeed | Somewhere) -> str:
    """Return such as ``speed on 8 H100 like published runs, ±25%``; "" where the record does not say it."""
    if speed.relative_error is None:
        return ""
    words = EVIDENCE_WORDS[speed.speed_evidence]
    return f"speed on {speed.accelerators} {speed.accelerator} {words}, ±{speed.relative_error:.0%}"


def list_speeds(places: Iterable[Somewhere]) -> list[str]:
    """Return a sentence for each speed that a quote counts on, with its basis, each once."""
    said = [(describe_speed(place), place.speed_basis) for place in places]
    return list(dict.fromkeys(f"{words}: {basis}" for words, basis in said if words))


def advise_measuring(job: str, points: Sequence[PointToMeasure], files: Sequence[str] = ()) -> str:
    """Return what to measure before money is spent, with the command that says how; "" where nothing is."""
    if not points:
        return ""
    gangs = " and ".join(
        f"{p.accelerator}:{p.accelerators} as {p.placement} ({format_usd(p.cost_usd)})" for p in points
    )
    command = f"stepfare profile {files[0] if len(files) == 1 else 'FILE'} --job {job} --points {len(points)}"
    return f"{job}: measure {gangs} first, then its speed is known to ±{points[-1].error_after:.0%}: {command}"
