"""A time from now as people write it in a field for hours or days."""

from __future__ import annotations

from datetime import timedelta

import pytest

from router.jobs.fields import RefusedError
from router.jobs.quantities import parse_time_ahead

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("12h", 12), ("+12h", 12), (" + 12h ", 12), ("12", 12), ("1.5", 1.5), ("36 hours", 36), ("1 hour", 1),
        ("36H", 36), ("2d", 48), ("2 days", 48), ("1 day 12 hours", 36), ("1d12h", 36), ("1week", 168), ("90 min", 1.5),
    ],
)  # fmt: skip
def test_what_people_write_is_read(text: str, hours: float) -> None:
    assert parse_time_ahead(text) == hours * HOUR


@pytest.mark.parametrize("text", ["", "soon", "-3", "12 parsecs", "12h 1d", "9999d", "2026-11-25T09:00Z", "h", "1e3"])
def test_the_rest_is_refused_with_a_remedy_for_such_a_field(text: str) -> None:
    with pytest.raises(RefusedError) as refused:
        parse_time_ahead(text)
    assert refused.value.remedy == "write hours or days, e.g. 36h, 2d or 1d12h"
    assert refused.value.what
