"""Define the machines that a job needs at the same moment: which accelerators, how many, how they are connected."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from pricing.money import Usd
from router.jobs.fields import Count, Flag, Path, RefusedError, Share, Spec, Tally, Text, show_value
from router.jobs.quantities import Dollars

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)\s*(?::\s*(\S+))?")
_HELP = "write H100:8, {H100: [8, 16], A100-80GB: 16} or a list of NAME:COUNT"
_MOST = 1_000_000


class GangOption(Spec):
    """One allowed gang: ``count`` accelerators of one kind in total."""

    accelerator: Text
    count: Count

    def __str__(self) -> str:
        return f"{self.accelerator}:{self.count}"


def parse_accelerators(value: object, at: Path = ()) -> Iterator[GangOption]:
    """Yield the gangs of SkyPilot's forms: ``H100:8``, ``H100`` (one), a list, ``{H100: 8, A100-80GB: [8, 16]}``."""
    if isinstance(value, GangOption):
        yield value
    elif isinstance(value, str):
        if "+" in value:
            raise RefusedError(
                f"{value!r} states how many of each go into one gang, which is not supported",
                "list them as alternatives, one to be chosen: [H100:8, A100-80GB:16]; for types of one family, "
                "`mixed: true` allows both in one gang",
                at=at,
            )
        match = _NAMED.fullmatch(value.strip())
        if match is None:
            raise RefusedError(f"{show_value(value)} is no accelerator with a count", _HELP, at=at)
        yield _option(match[1], match[2] if match[2] is not None else 1, at)
    elif isinstance(value, (list, tuple)) and value:
        for index, item in enumerate(value):
            yield from parse_accelerators(item, (*at, index))
    elif isinstance(value, dict) and value:
        yield from _parse_mapping(value, at)
    else:
        raise RefusedError(f"{show_value(value)} names no accelerator", _HELP, at=at)


def _parse_mapping(value: dict[str, Any], at: Path) -> Iterator[GangOption]:
    for name, counts in value.items():
        inside = (*at, name)
        if counts is None:  # `{H100:8}` is a key without a value
            yield from parse_accelerators(name, inside)
        elif not isinstance(counts, (list, tuple)):
            yield _option(name, counts, inside)
        elif not counts:
            raise RefusedError(f"{name} has no size", _HELP, at=inside)
        else:
            for index, count in enumerate(counts):
                yield _option(name, count, (*inside, index))


def _option(name: str, count: object, at: Path) -> GangOption:
    if isinstance(count, str) and count.isdecimal() and len(count) < 10:
        count = int(count)
    if type(count) is not int or not 0 < count <= _MOST:
        raise RefusedError(
            f"{show_value(count)} is no number of {name}", "a whole number of accelerators, 1 or more", at=at
        )
    return GangOption(accelerator=name, count=count)


def _parse_options(value: object) -> tuple[GangOption, ...]:
    word, content = value if isinstance(value, _WrittenOptions) else ("options", value)
    try:
        found = list(_parse_any_of(content) if word == "any_of" else parse_accelerators(content))
    except RefusedError as error:
        raise RefusedError(error.what, error.remedy, at=error.at, word=word) from None
    return tuple(sorted(set(found), key=lambda option: (option.accelerator, option.count)))


def _parse_any_of(value: object) -> Iterator[GangOption]:
    if not isinstance(value, (list, tuple)) or not value:
        raise RefusedError(f"{show_value(value)} is no list", "write a list of `accelerators: NAME:COUNT`")
    for index, item in enumerate(value):
        if not isinstance(item, dict) or "accelerators" not in item:
            raise RefusedError("an alternative needs `accelerators`", "write `- accelerators: H100:8`", at=(index,))
        for key in item:
            if key != "accelerators":
                remedy = "alternatives differ in accelerators only; regions go under `residency`"
                raise RefusedError(f"{key!r} cannot be said for one alternative", remedy, at=(index, str(key)))
        yield from parse_accelerators(item["accelerators"], (index, "accelerators"))


class _WrittenOptions(tuple[str, Any]):
    """A value with the word under which the user wrote it."""


Options = Annotated[
    tuple[GangOption, ...],
    PlainValidator(_parse_options),
    PlainSerializer(lambda options: [str(option) for option in options], return_type=list[str]),
    WithJsonSchema(
        {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "description": "Canonical form: NAME:COUNT, sorted.",
        }
    ),
]


class Gang(Spec):
    """The allowed gangs (counts are totals, not per machine) and how their machines must be connected.

    A gang is always in one region; ``regions`` is how many the job may use one after the other.
    """

    words: ClassVar[frozenset[str]] = frozenset({"accelerators", "any_of"})
    options: Options
    machines: Count | None = Field(
        default=None,
        description="Machines of the gang, each with as many of its accelerators: of `H100:16` on 2 each has 8. "
        "Left out: as many as it takes.",
        examples=[1, 2],
    )
    rdma: Literal["required", "optional"] = Field(
        default="optional",
        description="Whether machines must be joined by an RDMA fabric (EFA, InfiniBand ...).",
    )
    same_zone: Flag = True
    on_demand_share: Share = Field(default=0.0, description="Share of the gang bought on demand, the rest on spot.")
    regions: Count = Field(default=1, description="How many regions the job may use, one after the other.")
    min_saving: Dollars = Field(default=Usd(1_000_000_000), description="A move must save at least this.")
    max_moves: Tally | None = Field(
        default=None,
        description="The most starts in one plan beyond the first (of a running job: the most starts; 0: it stays). "
        "Left out: no bound.",
        examples=[0, 1],
    )
    mixed: Flag = Field(
        default=False,
        description="Whether one gang may have machines of two types, such as A100 with 40 and with 80 GB: one "
        "accelerator family, fabric and market, and as many accelerators a machine. It is as fast as the slower type "
        "alone. Where their accelerators differ, the gang must be allowed on either.",
        examples=[True],
    )

    @model_validator(mode="before")
    @classmethod
    def _from_words(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        value = dict(value)
        given = [word for word in ("accelerators", "any_of", "options") if word in value]
        if not given:
            raise RefusedError("no accelerators are given", "add e.g. `accelerators: H100:8`")
        if len(given) > 1:
            raise RefusedError(f"{given[0]} and {given[1]} are both given", "keep one of them", at=(given[1],))
        value["options"] = _WrittenOptions((given[0], value.pop(given[0])))
        return value

    @model_validator(mode="after")
    def _whole_machines(self) -> Gang:
        for option in self.options:
            if self.machines is not None and option.count % self.machines:
                raise RefusedError(
                    f"{option} on {self.machines} machines leaves them with unequal numbers",
                    "counts of `accelerators` are totals: write a multiple of `machines`",
                    at=("machines",),
                )
        return self

    def asks_for(self, machines: int) -> bool:
        """Return whether a gang may have so many machines."""
        return self.machines in (None, machines)
