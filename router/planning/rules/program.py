"""Represent a mixed-integer program as data: named variables and rows, and which of them are whose. No solver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pricing.places import RegionId

Sense = Literal["<=", ">=", "=="]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable with its bounds; ``cost`` is its objective coefficient in dollars."""

    name: str
    low: float
    high: float | None
    integer: bool
    cost: float


@dataclass(frozen=True, slots=True)
class ConstraintRow:
    """A constraint ``sum(coefficient x variable) sense rhs``; ``terms`` are (variable index, coefficient)."""

    name: str
    terms: tuple[tuple[int, float], ...]
    sense: Sense
    rhs: float


@dataclass(frozen=True, slots=True)
class Program:
    """A program that minimises cost over rows.

    The order of variables and rows is part of the value: same order, same answer.
    """

    variables: tuple[Variable, ...]
    rows: tuple[ConstraintRow, ...]

    def minimising(self, costs: Mapping[int, float]) -> Program:
        """Return the program with another objective: these coefficients, zero elsewhere."""
        return replace(self, variables=tuple(replace(v, cost=costs.get(i, 0.0)) for i, v in enumerate(self.variables)))

    def with_rows(self, rows: Sequence[ConstraintRow]) -> Program:
        """Return the program with more rows at the end."""
        return replace(self, rows=(*self.rows, *rows))

    def fixed(self, values: Mapping[int, float]) -> Program:
        """Return the program with these variables fixed."""
        return replace(
            self,
            variables=tuple(
                replace(v, low=values[i], high=values[i]) if i in values else v for i, v in enumerate(self.variables)
            ),
        )

    @property
    def integers(self) -> int:
        """Return the number of variables that are integer and not fixed."""
        return sum(v.integer and v.low != v.high for v in self.variables)


@dataclass(slots=True)
class ProgramBuilder:
    """Collects variables and rows, then freezes them."""

    variables: list[Variable] = field(default_factory=list)
    rows: list[ConstraintRow] = field(default_factory=list)

    def variable(
        self, name: str, *, low: float = 0.0, high: float | None = None, integer: bool = False, cost: float = 0.0
    ) -> int:
        """Add a variable and return its index."""
        self.variables.append(Variable(name, low, high, integer, cost))
        return len(self.variables) - 1

    def binary(self, name: str, *, cost: float = 0.0) -> int:
        """Add a 0/1 variable and return its index."""
        return self.variable(name, high=1.0, integer=True, cost=cost)

    def row(self, name: str, terms: Sequence[tuple[int, float]], sense: Sense, rhs: float) -> None:
        """Add a row; terms of one variable add up.

        A row without terms constrains nothing and is left out.
        """
        merged: dict[int, float] = {}
        for variable, coefficient in terms:
            merged[variable] = merged.get(variable, 0.0) + coefficient
        if merged:
            self.rows.append(ConstraintRow(name, tuple(merged.items()), sense, rhs))

    def build(self) -> Program:
        """Return the finished program."""
        return Program(tuple(self.variables), tuple(self.rows))


@dataclass(slots=True)
class ProgramLayout:
    """The index of each variable by job, candidate key, slot index, region, month; of g by group of jobs and region.

    ``covered`` has that of v by pool of committed spend and slot index.
    """

    x: dict[tuple[str, str, int], int] = field(default_factory=dict)
    z: dict[tuple[str, str, int], int] = field(default_factory=dict)
    w: dict[tuple[str, str], int] = field(default_factory=dict)
    y: dict[tuple[str, RegionId, str], int] = field(default_factory=dict)
    u: dict[str, int] = field(default_factory=dict)
    g: dict[tuple[str, RegionId], int] = field(default_factory=dict)
    covered: dict[tuple[int, int], int] = field(default_factory=dict)
    starts: dict[str, list[tuple[str, int]]] = field(default_factory=dict)  # candidate key and z, by job


def limit_row(name: str, index: int) -> str:
    """Return the name of a limit's row in a slot."""
    return f"limit {name} @{index}"
