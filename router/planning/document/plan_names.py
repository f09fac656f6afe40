"""Names of plans: plans of one name follow each other, and each name has a last plan of its own."""

from __future__ import annotations

from router.jobs.fields import RefusedError, parse_name

#: The name of the plans that the console shows as tonight's, unless its settings say another.
NIGHT = "night"
#: The name of the plans of accepted quotes; nobody gives it.
QUOTE = "quote"


def parse_plan_name(value: object) -> str:
    """Return a name that somebody gave to plans. RefusedError for what is no name, or that of quotes' plans."""
    name = parse_name(value)
    if name == QUOTE:
        raise RefusedError(f"{QUOTE!r} is the name of plans of accepted quotes", "give another name")
    return name
