"""Name the policy that runs a job, with its parameters: the one value that quotes, plans and attempts carry. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import Any

Number = int | float


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """A policy by its name in a deploy file, with the ``parameters`` that it runs with, sorted by name.

    ValueError for an empty name, and for parameters that are not finite numbers in order, each once.
    """

    name: str
    parameters: tuple[tuple[str, Number], ...] = ()

    def __post_init__(self) -> None:
        names = [name for name, _ in self.parameters]
        if not self.name or names != sorted(set(names)):
            raise ValueError("a policy has a name, and each parameter once, in order")
        for name, value in self.parameters:
            if not _is_number(value):
                raise ValueError(f"{name}: {value!r} is no number")

    @classmethod
    def of(cls, name: str, **parameters: Number) -> RunPolicy:
        """Return a policy with these parameters, sorted."""
        return cls(name, tuple(sorted(parameters.items())))

    @classmethod
    def read(cls, content: Any) -> RunPolicy:
        """Return the policy that :attr:`content` was made from. ValueError where it is none."""
        known = isinstance(content, dict) and set(content) == {"name", "parameters"}
        if not known or not isinstance(content["name"], str) or not isinstance(content["parameters"], dict):
            raise ValueError(f"{content!r} is no policy")
        return cls.of(content["name"], **content["parameters"])

    @classmethod
    def parse(cls, text: str) -> RunPolicy:
        """Return the policy that :attr:`text` was made from. ValueError where it is none."""
        return cls.read(json.loads(text))

    @classmethod
    def recorded(cls, text: str) -> RunPolicy | None:
        """Return the policy that a record holds as text; None where it holds none, or none that can be read."""
        try:
            return cls.parse(text) if text else None
        except (ValueError, TypeError):
            return None

    @property
    def content(self) -> dict[str, Any]:
        return {"name": self.name, "parameters": dict(self.parameters)}

    @property
    def text(self) -> str:
        """Return the policy as canonical JSON: equal policies give equal text."""
        return json.dumps(self.content, sort_keys=True, separators=(",", ":"))

    def __str__(self) -> str:
        inner = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in self.parameters)
        return f"{self.name} ({inner})" if inner else self.name


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and isfinite(value)


def run_policy_schema(description: str) -> dict[str, Any]:
    """Return the JSON Schema of :attr:`RunPolicy.content`."""
    return {
        "type": "object",
        "description": description,
        "properties": {
            "name": {"type": "string", "description": "As a deploy file calls it: docs/policies.md."},
            "parameters": {
                "type": "object",
                "additionalProperties": {"type": "number"},
                "description": "What it runs with, by name.",
            },
        },
        "required": ["name", "parameters"],
        "additionalProperties": False,
    }
