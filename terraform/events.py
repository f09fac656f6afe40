"""Terraform's JSON lines, read as they come: planned changes, progress and diagnostics.

The output of provisioners is not stored: a script may print anything. Diagnostics go through the masker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from terraform.diagnostics import Diagnostic

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
