"""Find the rules of approvals that bind a command: the state's, or the deploy file's where the state has none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from router.cli import console
from router.cli.console import CommandError, ExitCode
from router.cli.options import VARIABLE

if TYPE_CHECKING:
    from router.app.settings import AppSettings
    from router.controller.accept.approval import ApprovalRules
    from router.planning.document.plan import Plan
    from router.state.store import StateStore

_ASK_ADMINISTRATOR = "ask an administrator of the state (docs/guides/platform-team.md)"


def load_binding_rules(opened: AppSettings, store: StateStore) -> ApprovalRules | None:
    """Return the rules in force for a command that approves or applies, None without any.

    CommandError with exit code 4 where the user of this process can change them, since they would bind nobody, or
    where the clock of the command is not the real one.
    """
    from router.app.queries.approvals import approval_rules, state_rules

    held = state_rules(store)
    named = opened.deploy.approval_rules
    if held is None:
        if named is not None:
            _check_binding(Path(named))
        return approval_rules(opened, store)
    if named is not None:
        console.note(
            f"{named} is not read: the rules that {held.who} set for the state at {held.at:%Y-%m-%d %H:%MZ} hold"
        )
    if not store.administration.problem():
        console.note("you can change the rules of approvals: they bind only who applies as another user", "warning")
    elif os.environ.get(VARIABLE):  # noqa: TID251
        raise CommandError(
            f"{VARIABLE} is set, and rules of approvals hold by the real time",
            ExitCode.OVER_BUDGET,
            f"unset {VARIABLE}",
        )
    return held.rules


def require_administrator(store: StateStore, what: str) -> None:
    """Raise CommandError with exit code 7 where the state has rules that somebody else administers."""
    from router.app.queries.approvals import state_rules

    if state_rules(store) is not None and (problem := store.administration.problem()):
        raise CommandError(
            f"only an administrator of a state with rules of approvals {what}: {problem}",
            ExitCode.CREDENTIALS,
            _ASK_ADMINISTRATOR,
        )


def find_known_plan(store: StateStore, digest: str) -> Plan:
    """Return the plan of that digest as the state has it. CommandError with exit code 4 where it has none."""
    from router.app.queries.plans import whole_plan

    plan = whole_plan(store, digest)
    if plan is None:
        raise CommandError(
            f"plan-{digest[:12]} was not made with this state, as rules of approvals require",
            ExitCode.OVER_BUDGET,
            "make it anew with this state: `stepfare plan ... --out FILE`",
        )
    return plan


def _check_binding(path: Path) -> None:
    from router.config.approval_file import ProcessIdentity, change_problem

    identity = ProcessIdentity.of_process()
    if identity is None:
        console.note(f"{path}: whether you could change these rules cannot be told on this system", "warning")
    elif identity.uid == 0:
        console.note(f"{path}: root can change these rules: they bind only who applies as another user", "warning")
    elif problem := change_problem(path, identity):
        raise CommandError(
            f"{path}: these rules bind nobody: {problem}",
            ExitCode.OVER_BUDGET,
            "have an administrator set them for the state (`stepfare approvals set`), or give the file to another user",
        )
