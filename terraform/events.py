"""Terraform's JSON lines, read as they come: planned changes, progress and diagnostics, with secrets masked.

The output of provisioners is not stored: a script may print anything.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from terraform.errors import Diagnostic

# The kinds of message that are about one resource.
_HOOKS: Final = frozenset({"apply_start", "apply_progress", "apply_complete", "apply_errored"})


@dataclass(frozen=True, slots=True)
class TerraformEvent:
    """One step of one resource.

    ``kind``: apply_start, apply_progress, apply_complete, apply_errored; ``action``: create, update, delete; ``id`` is
    the cloud's, "" before there is one; ``seconds`` since the step began.
    """

    kind: str
    address: str
    action: str
    id: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """A resource and its planned change, or a change made outside Terraform: create, update, delete, replace."""

    address: str
    action: str
    reason: str = ""


@dataclass(slots=True)
class Transcript:
    """Collect the lines of one command."""

    mask: Callable[[str], str]
    planned: list[ResourceChange] = field(default_factory=list)
    drift: list[ResourceChange] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    done: list[TerraformEvent] = field(default_factory=list)
    outputs: Mapping[str, Any] | None = None

    def read(self, line: str) -> TerraformEvent | None:
        """Process one line; return the event in it, None for everything else. Lines that are not JSON are ignored."""
        try:
            message = json.loads(line)
        except ValueError:
            return None
        if not isinstance(message, dict):
            return None
        kind = message.get("type")
        if kind in _HOOKS:
            event = _event(str(kind), message.get("hook") or {})
            if event.kind == "apply_complete":
                self.done.append(event)
            return event
        if kind == "planned_change":
            self.planned.append(_change(message.get("change") or {}))
        elif kind == "resource_drift":
            self.drift.append(_change(message.get("change") or {}))
        elif kind == "diagnostic":
            self.diagnostics.append(self._diagnostic(message.get("diagnostic") or {}))
        elif kind == "outputs":
            self.outputs = _outputs(message.get("outputs") or {})
        return None

    def _diagnostic(self, diagnostic: Mapping[str, Any]) -> Diagnostic:
        return Diagnostic(
            severity=str(diagnostic.get("severity", "error")),
            summary=self.mask(str(diagnostic.get("summary", ""))),
            detail=self.mask(str(diagnostic.get("detail", "")).strip()),
            address=str(diagnostic.get("address", "")),
        )


def _event(kind: str, hook: Mapping[str, Any]) -> TerraformEvent:
    return TerraformEvent(
        kind=kind,
        address=_address(hook),
        action=str(hook.get("action", "")),
        id=str(hook.get("id_value", "")),
        seconds=float(hook.get("elapsed_seconds", 0)),
    )


def _change(change: Mapping[str, Any]) -> ResourceChange:
    return ResourceChange(_address(change), str(change.get("action", "")), str(change.get("reason", "")))


def _address(hook: Mapping[str, Any]) -> str:
    return str((hook.get("resource") or {}).get("addr", ""))


def _outputs(outputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return values by name; None when one is hidden or only announced (a preview does not know them)."""
    if not all("value" in output for output in outputs.values()):
        return None
    return {name: output["value"] for name, output in outputs.items()}


HIDDEN: Final = "(hidden)"
# Shorter secrets are not masked: they would hide ordinary words.
_SHORTEST_LINE = 12
_SHORTEST_VALUE = 8
_SECRET_NAME = re.compile(r"SECRET|PASSW|TOKEN|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE|AUTH|CONN_STR|SAS", re.IGNORECASE)


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of an environment whose names say that they are secret."""
    return tuple(value for name, value in environment.items() if _SECRET_NAME.search(name))


class Masker:
    """Replace secrets by ``(hidden)``: whole, in base64, as JSON escapes them, and each of their longer lines."""

    __slots__ = ("_parts",)

    def __init__(self, secrets: Iterable[str]) -> None:
        parts: set[str] = set()
        for secret in secrets:
            if len(secret) < _SHORTEST_VALUE:
                continue
            parts |= {secret, secret.strip(), json.dumps(secret)[1:-1], base64.b64encode(secret.encode()).decode()}
            parts |= {line for part in secret.splitlines() if len(line := part.strip()) >= _SHORTEST_LINE}
        # The longest part comes first, or a line would be cut out of the text that contains it.
        self._parts = tuple(sorted(parts, key=lambda part: (-len(part), part)))

    def __call__(self, text: str) -> str:
        for part in self._parts:
            text = text.replace(part, HIDDEN)
        return text

    def __repr__(self) -> str:
        return f"Masker({len(self._parts)} secrets)"
