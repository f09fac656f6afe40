"""Command ``stepfare audit``: print the audit log and verify its hash chain."""

from __future__ import annotations

import json

from router.cli import console
from router.cli.console import CommandError
from router.cli.options import TableOutput, chosen_clock
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, open_state_store, own_context


def audit(
    settings_files: SettingsOptions = DEFAULT_FILES,
    output: TableOutput = "table",
) -> None:
    """Print the audit log: who did what, with how much money at risk.

    Each entry carries the hash of the one before. The exit code is 1 if an entry was changed or removed, or if the
    months that it says were closed are not those that are.

    \b
    stepfare audit
    stepfare audit -o json
    """
    from router.app.queries.audit import audit_content, read_audit_log
    from router.cli.ledger import check_closings
    from router.render.audit_page import AUDIT_ENTRIES, AuditRow

    with open_state_store(settings_files, makes=False) as (opened, store):
        trail = read_audit_log(own_context(opened, store, chosen_clock()))
        if output == "json":
            console.out(json.dumps(audit_content(trail), indent=2))
        else:
            text = AUDIT_ENTRIES.text(map(AuditRow, trail.entries), console.screen())
            console.out(text if trail.entries else "nothing was done yet")
        if trail.broken is not None:
            raise CommandError(f"entry {trail.broken} is not what was written: somebody changed or removed one")
        check_closings(store)
