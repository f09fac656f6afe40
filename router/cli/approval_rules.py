"""Find the rules of approvals for a command: the deploy file's, or those of ``--rules``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.console import CommandError, ExitCode

if TYPE_CHECKING:
    from router.app.settings import AppSettings
    from router.controller.approval import ApprovalRules

RULES_HELP = "Rules of approvals (YAML); default: `approval_rules` of the deploy file."


def find_rules(opened: AppSettings, given: Path | None) -> Path | None:
    """Return the path of the rules in force, None without any.

    InvalidInputError where the deploy file names other rules than ``--rules``: an option does not set rules aside.
    """
    named = opened.deploy.approval_rules
    if named is None:
        return given
    if given is not None and given.resolve() != Path(named).resolve():
        raise InvalidInputError.single(
            f"the deploy file names other rules, {named}", field="--rules", remedy="leave the option out"
        )
    return Path(named)


def load_binding_rules(opened: AppSettings, given: Path | None) -> ApprovalRules | None:
    """Return the rules in force for a command that applies, None without any.

    CommandError with exit code 4 where the user of this process can change them: they would bind nobody.
    """
    from router.config.approval_file import ProcessIdentity, change_problem, load_approval_rules

    path = find_rules(opened, given)
    if path is None:
        return None
    rules = load_approval_rules(path)
    identity = ProcessIdentity.of_process()
    if identity is None:
        console.note(f"{path}: whether you could change these rules cannot be told on this system", "warning")
    elif identity.uid == 0:
        console.note(f"{path}: root can change these rules: they bind only who applies as another user", "warning")
    elif problem := change_problem(path, identity):
        raise CommandError(
            f"{path}: these rules bind nobody: {problem}",
            ExitCode.OVER_BUDGET,
            "give the file and the folders above it to another user, writable by that user alone",
        )
    return rules
