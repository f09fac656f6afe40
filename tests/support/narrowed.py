"""Values of which a test knows that they are there, and of which type: the assertion and the value in one."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return the value, which is not None."""
    assert value is not None
    return value


def typed(kind: type[T], value: object) -> T:
    """Return the value, which is of that type."""
    assert isinstance(value, kind), value
    return value
