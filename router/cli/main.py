"""The command ``stepfare``: which commands there are. Each is imported when it is called, so that help is quick."""

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
    """One command: the line that `stepfare --help` shows for it, and its function."""

    help: str
    module: str
    function: str


# A name may have two words: `plan show FILE` is that command, `plan PATH` is `plan`.
COMMANDS = {
    "offers": Entry("What the price book sells, cheapest first.", "router.cli.offers", "offers"),
    "validate": Entry("Check job and limits files.", "router.cli.validate", "validate"),
    "plan": Entry("Place jobs so that a step costs least.", "router.cli.plan", "plan"),
    "plan show": Entry("Print a plan that was written with --out.", "router.cli.plan_show", "show"),
    "plan diff": Entry("What moved from one plan to another, and why.", "router.cli.plan_diff", "diff"),
    "plan check": Entry("Whether a plan may still be carried out.", "router.cli.plan_check", "check"),
    "backtest": Entry("What policies cost in recorded weather.", "router.cli.backtest", "backtest"),
    "explain": Entry("Why a job is placed where it is.", "router.cli.explain", "explain"),
    "quote": Entry("What a job costs by a deadline, and how sure.", "router.cli.quote", "quote"),
    "quotes list": Entry("The stored quotes.", "router.cli.quotes", "list_quotes"),
    "quotes calibration": Entry("Whether what was quoted came true.", "router.cli.quotes_calibration", "calibration"),
    "quotes fit": Entry("Learn from the price history how sure quotes may be.", "router.cli.quotes_fit", "fit"),
    "quotes show": Entry("Print a stored quote again.", "router.cli.quotes", "show"),
    "apply": Entry("Make the machines of a plan and start its jobs.", "router.cli.apply", "apply"),
    "status": Entry("Gangs, machines and money as they are now.", "router.cli.status", "status"),
    "logs": Entry("What the ranks of a job printed.", "router.cli.logs", "logs"),
    "destroy": Entry("Release machines.", "router.cli.destroy", "destroy"),
    "sweep": Entry("Find what should not exist, and release it.", "router.cli.sweep", "sweep"),
    "watch": Entry("Listen to all gangs and release those that end.", "router.cli.watch", "watch"),
    "drill kill-node": Entry("Switch a sandbox machine off.", "router.cli.drill", "kill_node"),
    "drill notice": Entry("Tell a sandbox machine that it is taken back.", "router.cli.drill", "notice"),
    "drill zone-down": Entry("Take a zone of the sandbox away.", "router.cli.drill", "zone_down"),
    "drill zone-up": Entry("Open what `drill zone-down` closed.", "router.cli.drill", "zone_up"),
    "drill slow-node": Entry("Slow a sandbox machine's training down.", "router.cli.drill", "slow_node"),
    "ledger list": Entry("What was planned, metered and added.", "router.cli.ledger_list", "list_entries"),
    "ledger add": Entry("Add fees, credits and corrections.", "router.cli.ledger_add", "add"),
    "ledger periods": Entry("Closed and open months, and their sums.", "router.cli.ledger_periods", "periods"),
    "ledger close": Entry("Close the books of a month, for good.", "router.cli.ledger_close", "close"),
    "ledger verify": Entry("Whether the books are as they were written.", "router.cli.ledger_verify", "verify"),
    "ledger export": Entry("Write the ledger as a FOCUS file.", "router.cli.ledger_export", "export"),
    "ledger backup": Entry("Write the ledger into a file.", "router.cli.ledger_backup", "backup"),
    "ledger restore": Entry("Put a backup into a new state.", "router.cli.ledger_backup", "restore"),
    "ledger archive": Entry("Move entries of closed months to a file.", "router.cli.ledger_archive", "archive"),
    "state backup": Entry("Write state and run directories into a file.", "router.cli.state_backup", "backup"),
    "state restore": Entry("Put such a file back.", "router.cli.state_backup", "restore"),
    "budget list": Entry("What may be spent in a month, by whom.", "router.cli.budget", "list_budgets"),
    "budget set": Entry("Set the budget of all, a team or a project.", "router.cli.budget", "set_budget"),
    "budget remove": Entry("Take a budget away.", "router.cli.budget", "remove"),
    "budget check": Entry("How far budgets are, and warn.", "router.cli.budget_check", "check"),
    "audit": Entry("Who did what, with how much money at stake.", "router.cli.audit", "audit"),
    "checkpoint push": Entry("Copy checkpoints to durable storage.", "router.cli.checkpoint", "push"),
    "checkpoint pull": Entry("Fetch the newest good checkpoint.", "router.cli.checkpoint", "pull"),
    "checkpoint copy": Entry("Copy the newest checkpoint to another region.", "router.cli.checkpoint", "copy"),
    "checkpoint list": Entry("Checkpoints on durable storage.", "router.cli.checkpoint_list", "list_checkpoints"),
    "checkpoint verify": Entry("Whether they are as they were written.", "router.cli.checkpoint_list", "verify"),
    "checkpoint watch": Entry("Copy each checkpoint as it is written.", "router.cli.checkpoint_watch", "watch"),
    "checkpoint run": Entry("Run a training with an uploader beside it.", "router.cli.checkpoint_watch", "run"),
    "demo": Entry("Plan, apply, train and finish on this machine.", "router.cli.demo", "demo"),
    "prices refresh": Entry("Fetch what the clouds sell into a price book.", "router.cli.prices_refresh", "refresh"),
    "prices list": Entry("The stored price books.", "router.cli.prices_list", "list_books"),
    "prices use": Entry("Make a stored price book the latest again.", "router.cli.prices_list", "use_book"),
    "prices diff": Entry("What changed from one price book to another.", "router.cli.prices_diff", "diff"),
    "prices history": Entry("How prices and stock moved.", "router.cli.prices_history", "history"),
    "prices import": Entry(
        "Put the offers of a catalogue file into the book.", "router.cli.prices_import", "import_file"
    ),
    "bills import": Entry("Take bills of clouds in (FOCUS 1.0 to 1.4).", "router.cli.bills_import", "import_files"),
    "bills list": Entry("The bills that were imported.", "router.cli.bills", "list_bills"),
    "bills show": Entry("One bill: sums, files, and what is missing in it.", "router.cli.bills", "show"),
    "bills restore": Entry("Bring an earlier version of a bill back.", "router.cli.bills_change", "restore"),
    "bills remove": Entry("Take a bill away that should not count.", "router.cli.bills_change", "remove"),
    "bills reconcile": Entry(
        "Lay bills beside what was planned and metered.", "router.cli.bills_reconcile", "reconcile"
    ),
    "ledger check": Entry("Hold a FOCUS file against every rule.", "router.cli.ledger_check", "check"),
    "showback": Entry("What a month came to: by team, project, job.", "router.cli.showback", "showback"),
    "stock": Entry("Where a gang is likely to be had.", "router.cli.stock", "stock"),
    "quotas": Entry("What the accounts may have and hold.", "router.cli.quotas", "quotas"),
    "doctor": Entry("Whether each cloud can be asked, and what is missing.", "router.cli.doctor", "doctor"),
    "schema": Entry("JSON Schema of the files you write, or a plan.", "router.cli.schema", "schema"),
    "import sky": Entry("Turn a SkyPilot task into a job.", "router.cli.import_sky", "import_sky"),
}


class Command(TyperCommand):
    """One that knows how many words stood behind `--`, which click takes out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Of click."""
        ctx.meta[BEHIND] = len(args) - args.index("--") - 1 if "--" in args else None
        rest: list[str] = super().parse_args(ctx, args)
        return rest


class LazyGroup(TyperGroup):
    """Commands of ``COMMANDS``, imported when asked for. Contexts are Any: their class is typer's own business."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """All names, in the order in which help shows them."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The command of that name; None when there is none."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(name=cmd_name, cls=Command)(getattr(importlib.import_module(entry.module), entry.function))
        return get_command(app)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The longest name that the arguments begin with."""
        two = " ".join(args[:2])
        if len(args) > 1 and two in COMMANDS:
            return two, self.get_command(ctx, two), args[2:]
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no such command {args[0]!r}{_meant(args[0])}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """The list in `stepfare --help`, from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what it returns, if an integer, is the exit code."""
        try:
            with guard():
                code = super().invoke(ctx)
        except Stopped as stopped:
            code = stopped.code
        if isinstance(code, int) and code:
            raise typer.Exit(int(code))
        return None


def _meant(word: str) -> str:
    """The commands that begin with a word, or the one that is spelt most like it."""
    import difflib

    longer = [name for name in COMMANDS if name.startswith(f"{word} ")]
    near = longer or difflib.get_close_matches(word, COMMANDS, n=1)
    return f"; did you mean {' or '.join(near)}?" if near else ""


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
    """Where should each training job run tonight so that a step costs least and the deadline still holds?"""


def main() -> None:
    """Run the console script ``stepfare``."""
    restore_child_interrupt()
    app(prog_name="stepfare")
