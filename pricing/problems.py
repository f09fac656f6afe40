"""Problems of an input: where, which field, why, and what to do. One exception carries them all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of an input. ``where`` is ``file:line:column`` as far as known; ``field`` is a dotted path."""

    where: str
    field: str
    what: str
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """Return the fault and its remedy in one sentence, to stand beside the field."""
        return f"{self.what}; {self.remedy}" if self.remedy else self.what

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        name = f"{self.field}: " if self.field else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        return f"{place}{name}{self.what}{remedy}"


class InvalidInputError(Exception):
    """An input that a user gave is refused whole; exit code 2. Nothing was written."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(p) for p in self.problems))

    def __reduce__(self) -> tuple[type[InvalidInputError], tuple[tuple[Problem, ...]]]:
        """Return what a worker process sends back: the problems, not the message made of them."""
        return type(self), (self.problems,)

    @classmethod
    def single(cls, what: str, *, where: str = "", field: str = "", remedy: str = "") -> InvalidInputError:
        """Return an error with one problem."""
        return cls([Problem(where, field, what, remedy)])
