"""Where a job may not go, read a second time: allow and deny lists over cloud, region, country and group."""

from __future__ import annotations

from typing import Any

from pricing.places import Region


def forbidden(residency: Any, region: Region) -> str:
    """Why a job may not run there; "" when it may."""
    tokens = _tokens(region)
    rules = [*residency.allow, *residency.deny]
    vague = any(str(rule).isupper() for rule in rules)
    if vague and (region.country is None or region.residency_group is None):
        return "country or group unknown"
    for rule in residency.deny:
        if str(rule) in tokens:
            return f"denied by {rule}"
    if residency.allow and not any(str(rule) in tokens for rule in residency.allow):
        return f"not among {[str(rule) for rule in residency.allow]}"
    return ""


def _tokens(region: Region) -> set[str]:
    group = region.residency_group or ""
    groups = {group, "EEA"} if group in {"EU", "EEA"} else {group}
    return {region.id.cloud, region.id.region, str(region.id), region.country or "", *groups}
