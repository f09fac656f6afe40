"""Values that must be there."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return the value; the test fails where there is none."""
    assert value is not None
    return value
