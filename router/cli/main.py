"""Run the command line ``stepfare``. A command's module is imported when it is called, so that help is quick."""

from __future__ import annotations

import signal
from typing import Annotated, Any

import typer

from pricing.retired_words import print_each_once
from router.cli.commands import TABLE
from router.cli.completion import enable_completion
from router.cli.console import CommandExitError, ExitCode, handle_command_errors, note, out
from router.cli.groups import RootGroup


class StepfareGroup(RootGroup):
    """All commands, with errors as messages and exit codes."""

    table = TABLE

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the first words; Ctrl-C before a command begins ends it as any other."""
        try:
            return super().make_context(*args, **kwargs)
        except KeyboardInterrupt:
            note("\ninterrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what it returns, if an integer, is the exit code."""
        try:
            with handle_command_errors():
                code = super().invoke(ctx)
        except CommandExitError as stopped:
            code = stopped.code
        if isinstance(code, int) and code:
            raise typer.Exit(int(code))
        return None


def _show_version(is_set: bool) -> None:
    if is_set:
        from importlib.metadata import version

        out(f"stepfare {version('stepfare')}")
        raise typer.Exit(ExitCode.OK)


app = typer.Typer(
    cls=StepfareGroup,
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
  stepfare explain plan.json llama2-7b-sft-chat
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
    enable_completion()
    print_each_once()
    app(prog_name="stepfare")


def restore_child_interrupt() -> None:
    """Give child processes the default SIGINT disposition, even if this process ignores SIGINT.

    A shell starts ``command &`` and ``nohup`` with SIGINT ignored. An ignored signal stays ignored across exec, and
    Terraform could not be stopped. A handler is reset to the default by exec. The handler installed here does nothing,
    so this process keeps ignoring Ctrl-C. Call this in the main thread, before the first child starts.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: None)
