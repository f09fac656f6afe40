"""What an IAM policy allows: its statements applied to one request, as the IAM user guide describes the evaluation of
identity-based policies. Only Allow, and the condition operators that the policy under test uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

ACCOUNT = "123456789012"


@dataclass(frozen=True)
class Thing:
    """A resource that a request is about: its kind and name, the tags that it has, and those that it is to get."""

    kind: str
    name: str = "x"
    has: Mapping[str, str] = field(default_factory=dict)
    gets: Mapping[str, str] = field(default_factory=dict)
    service: str = "ec2"

    @property
    def arn(self) -> str:
        """Images and snapshots belong to no account in their ARNs; IAM knows no region."""
        region = "" if self.service == "iam" else "us-east-1"
        account = "" if self.kind in ("image", "snapshot") or self.service == "ssm" else ACCOUNT
        return f"arn:aws:{self.service}:{region}:{account}:{self.kind}/{self.name}"


def allows(policy: Mapping[str, Any], action: str, things: Sequence[Thing], **context: str) -> bool:
    """Whether every one of ``things`` is covered by a statement; ``context`` as ``ec2_CreateAction``."""
    keys = {name.replace("_", ":", 1): value for name, value in context.items()}
    return all(any(_applies(s, action, thing, keys) for s in policy["Statement"]) for thing in things)


def _applies(statement: Mapping[str, Any], action: str, thing: Thing, context: Mapping[str, str]) -> bool:
    resources = statement["Resource"]
    listed = [resources] if isinstance(resources, str) else resources
    keys = dict(context)
    keys |= {f"aws:ResourceTag/{key}": value for key, value in thing.has.items()}
    keys |= {f"aws:RequestTag/{key}": value for key, value in thing.gets.items()}
    return (
        action in statement["Action"]
        and any(_like(thing.arn, pattern) for pattern in listed)
        and all(_holds(test, keys) for test in _tests(statement))
    )


def _tests(statement: Mapping[str, Any]) -> Iterator[tuple[str, str, Sequence[str]]]:
    for operator, wanted in statement.get("Condition", {}).items():
        for key, values in wanted.items():
            yield operator, key, [values] if isinstance(values, str) else values


def _holds(test: tuple[str, str, Sequence[str]], keys: Mapping[str, str]) -> bool:
    operator, key, values = test
    if operator == "Null":
        return (key not in keys) == (values == ["true"])
    if key not in keys:
        return False
    if operator == "StringEquals":
        return keys[key] in values
    assert operator == "StringLike", operator
    return any(_like(keys[key], value) for value in values)


def _like(text: str, pattern: str) -> bool:
    return fnmatchcase(text, re.sub(r"\[", "[[]", pattern))
