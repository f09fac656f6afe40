"""Terraform's CLI configuration, which says where a run's provider plugins come from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PluginSources:
    """The sources of provider plugins.

    ``cache``: a folder shared by all runs, so that a provider is fetched once. ``mirror``: the only place to take
    providers from, for machines without a registry. ``overrides``: folder of a provider's binary by source address.
    """

    cache: Path | None = None
    mirror: Path | None = None
    overrides: Mapping[str, Path] = field(default_factory=dict)


def render_cli_config(plugins: PluginSources) -> str:
    """Return the text of a file for ``TF_CLI_CONFIG_FILE``; the same settings give the same text."""
    lines = ["disable_checkpoint = true"]
    if plugins.cache is not None:
        lines.append(f"plugin_cache_dir = {_quoted(plugins.cache)}")
    if plugins.mirror is not None or plugins.overrides:
        lines.append("provider_installation {")
        if plugins.overrides:
            lines.append("  dev_overrides {")
            lines += [f"    {json.dumps(name)} = {_quoted(path)}" for name, path in sorted(plugins.overrides.items())]
            lines.append("  }")
        if plugins.mirror is not None:
            lines += ["  filesystem_mirror {", f"    path = {_quoted(plugins.mirror)}", "  }"]
        else:
            lines.append("  direct {}")
        lines.append("}")
    return "\n".join(lines) + "\n"


def _quoted(path: Path) -> str:
    # The language of this file quotes strings as JSON does.
    return json.dumps(str(path))
