"""Command ``stepfare``: the table of its commands. Each is imported when it is called, so that help is quick."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from router.cli.child_signals import restore_child_interrupt
from router.cli.console import BEHIND, ExitCode, Stopped, guard, out


@dataclass(frozen=True, slots=True)
class Entry:
    """Line in `stepfare --help` and function of a command."""

    help: str
    module: str
    function: str


# A name may have two words: `plan show FILE` calls `plan show`, while `plan PATH` calls `plan`.
COMMANDS = {
    "offers": Entry("List the offers of the price book, cheapest first.", "router.cli.offers", "offers"),
    "validate": Entry("Check job and limits files.", "router.cli.validate", "validate"),
    "plan": Entry("Place jobs so that a step costs least.", "router.cli.plan", "plan"),
    "plan show": Entry("Print a plan that was written with --out.", "router.cli.plan_show", "show"),
    "plan diff": Entry("Compare two plans and explain the changes.", "router.cli.plan_diff", "diff"),
    "plan check": Entry("Check whether a plan can still be applied.", "router.cli.plan_check", "check"),
    "backtest": Entry("Compare policies on recorded spot availability.", "router.cli.backtest", "backtest"),
    "explain": Entry("Explain why a job is placed where it is.", "router.cli.explain", "explain"),
    "quote": Entry("Estimate what a job costs by a deadline.", "router.cli.quote", "quote"),
    "quotes list": Entry("List the stored quotes.", "router.cli.quotes", "list_quotes"),
    "quotes calibration": Entry(
        "Compare accepted quotes with the outcomes.", "router.cli.quotes_calibration", "calibration"
    ),
    "quotes fit": Entry("Fit the ranges of quotes to the price history.", "router.cli.quotes_fit", "fit"),
    "quotes show": Entry("Print a stored quote again.", "router.cli.quotes", "show"),
    "apply": Entry("Provision the machines of a plan, start its jobs.", "router.cli.apply", "apply"),
    "status": Entry("Show gangs, machines and costs.", "router.cli.status", "status"),
    "logs": Entry("Print the output of a job's ranks.", "router.cli.logs", "logs"),
    "destroy": Entry("Release machines.", "router.cli.destroy", "destroy"),
    "sweep": Entry("Find and delete orphaned resources.", "router.cli.sweep", "sweep"),
    "watch": Entry("Supervise all gangs; replace those that are lost.", "router.cli.watch", "watch"),
    "drill kill-node": Entry("Switch a sandbox machine off.", "router.cli.drill", "kill_node"),
    "drill notice": Entry("Send a sandbox machine an interruption notice.", "router.cli.drill", "notice"),
    "drill zone-down": Entry("Close a sandbox zone and preempt its machines.", "router.cli.drill", "zone_down"),
    "drill zone-up": Entry("Open zones that `drill zone-down` closed.", "router.cli.drill", "zone_up"),
    "drill slow-node": Entry("Slow down the training on a sandbox machine.", "router.cli.drill", "slow_node"),
    "ledger list": Entry("List planned, metered and added entries.", "router.cli.ledger_list", "list_entries"),
    "ledger add": Entry("Add fees, credits and corrections.", "router.cli.ledger_add", "add"),
    "ledger periods": Entry("List closed and open months with their sums.", "router.cli.ledger_periods", "periods"),
    "ledger close": Entry("Close the books of a month permanently.", "router.cli.ledger_close", "close"),
    "ledger verify": Entry("Verify that the ledger is unchanged.", "router.cli.ledger_verify", "verify"),
    "ledger export": Entry("Export the ledger as a FOCUS file.", "router.cli.ledger_export", "export"),
    "ledger backup": Entry("Back up the ledger to a file.", "router.cli.ledger_backup", "backup"),
    "ledger restore": Entry("Restore a backup into an empty ledger.", "router.cli.ledger_backup", "restore"),
    "ledger archive": Entry("Move entries of closed months to a file.", "router.cli.ledger_archive", "archive"),
    "state backup": Entry("Back up state and run directories to a file.", "router.cli.state_backup", "backup"),
    "state restore": Entry("Restore a missing state from a backup.", "router.cli.state_backup", "restore"),
    "budget list": Entry("List monthly budgets and what is spent.", "router.cli.budget", "list_budgets"),
    "budget set": Entry("Set the budget of everybody, a team or a project.", "router.cli.budget", "set_budget"),
    "budget remove": Entry("Remove a budget.", "router.cli.budget", "remove"),
    "budget check": Entry("Check budgets and send notices.", "router.cli.budget_check", "check"),
    "audit": Entry("Print the audit log and verify its hash chain.", "router.cli.audit", "audit"),
    "checkpoint push": Entry("Copy checkpoints to durable storage.", "router.cli.checkpoint", "push"),
    "checkpoint pull": Entry("Fetch the newest good checkpoint.", "router.cli.checkpoint", "pull"),
    "checkpoint copy": Entry("Copy the newest checkpoint to another region.", "router.cli.checkpoint", "copy"),
    "checkpoint list": Entry("List checkpoints on durable storage.", "router.cli.checkpoint_list", "list_checkpoints"),
    "checkpoint verify": Entry("Verify stored checkpoints byte by byte.", "router.cli.checkpoint_list", "verify"),
    "checkpoint watch": Entry("Copy each checkpoint as it is written.", "router.cli.checkpoint_watch", "watch"),
    "checkpoint run": Entry("Run a training with an uploader beside it.", "router.cli.checkpoint_watch", "run"),
    "demo": Entry("Run a whole training on a simulated cloud.", "router.cli.demo", "demo"),
    "prices refresh": Entry("Fetch what the clouds sell into a price book.", "router.cli.prices_refresh", "refresh"),
    "prices list": Entry("List the stored price books.", "router.cli.prices_list", "list_books"),
    "prices use": Entry("Make a stored price book the latest again.", "router.cli.prices_list", "use_book"),
    "prices diff": Entry("Compare two price books.", "router.cli.prices_diff", "diff"),
    "prices history": Entry("Show the history of prices and stock.", "router.cli.prices_history", "history"),
    "prices import": Entry("Import offers from a catalogue file.", "router.cli.prices_import", "import_file"),
    "bills import": Entry("Import bills of clouds (FOCUS 1.0 to 1.4).", "router.cli.bills_import", "import_files"),
    "bills list": Entry("List the imported bills.", "router.cli.bills", "list_bills"),
    "bills show": Entry("Show one bill: sums, files and gaps.", "router.cli.bills", "show"),
    "bills restore": Entry("Restore an earlier version of a bill.", "router.cli.bills_change", "restore"),
    "bills remove": Entry("Remove a bill that should not count.", "router.cli.bills_change", "remove"),
    "bills reconcile": Entry(
        "Reconcile bills with planned and metered costs.", "router.cli.bills_reconcile", "reconcile"
    ),
    "ledger check": Entry("Validate a FOCUS file.", "router.cli.ledger_check", "check"),
    "showback": Entry("Report the costs of a month by team and job.", "router.cli.showback", "showback"),
    "stock": Entry("Ask where a gang is likely to be available.", "router.cli.stock", "stock"),
    "quotas": Entry("List quotas and reserved capacity.", "router.cli.quotas", "quotas"),
    "doctor": Entry("Check access and permissions in each cloud.", "router.cli.doctor", "doctor"),
    "schema": Entry("Print the JSON Schema of a file.", "router.cli.schema", "schema"),
    "import sky": Entry("Convert a SkyPilot task into a job.", "router.cli.import_sky", "import_sky"),
}


class Command(TyperCommand):
    """Command that knows the number of words after `--`, which click removes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Store the number of words after `--` in the context and let click parse the arguments."""
        ctx.meta[BEHIND] = len(args) - args.index("--") - 1 if "--" in args else None
        remaining: list[str] = super().parse_args(ctx, args)
        return remaining


class LazyGroup(TyperGroup):
    """Group of the commands in ``COMMANDS``, imported when called. Contexts are Any because their class is private."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Return all names, in the order in which help shows them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """Return the command of that name, or None."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name=cmd_name, cls=Command)(getattr(importlib.import_module(entry.module), entry.function))
        return get_command(app)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command with the longest name that the arguments begin with."""
        two = " ".join(args[:2])
        if len(args) > 1 and two in COMMANDS:
            return two, self.get_command(ctx, two), args[2:]
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no such command {args[0]!r}{_suggest(args[0])}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write the list of commands in `stepfare --help`, from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an integer that it returns becomes the exit code."""
        try:
            with guard():
                code = super().invoke(ctx)
        except Stopped as stopped:
            code = stopped.code
        if isinstance(code, int) and code:
            raise typer.Exit(int(code))
        return None


def _suggest(word: str) -> str:
    """Return a hint with the commands that begin with a word, or the one spelt most like it."""
    import difflib

    with_prefix = [name for name in COMMANDS if name.startswith(f"{word} ")]
    candidates = with_prefix or difflib.get_close_matches(word, COMMANDS, n=1)
    return f"; did you mean {' or '.join(candidates)}?" if candidates else ""


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        out(f"stepfare {version('stepfare')}")
        raise typer.Exit(ExitCode.OK)


app = typer.Typer(
    cls=LazyGroup,
    name="stepfare",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="""
\b
Examples:
  stepfare validate examples/nightly
  stepfare plan examples/nightly --limits examples/nightly/limits.yaml
  stepfare explain plan.json llama-7b
\b
Exit codes: 0 done, 1 failure, 2 usage or invalid input, 3 a job could not be
placed, 4 over budget or guardrail, 5 partial, 6 stale plan or price moved,
7 credentials or permission, 130 interrupted.
""",
)


@app.callback()
def stepfare(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Place and run training jobs on cloud GPUs, so that a step costs least and every deadline holds."""


def main() -> None:
    """Run the console script ``stepfare``."""
    restore_child_interrupt()
    app(prog_name="stepfare")
