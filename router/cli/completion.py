"""``stepfare completion``: the script that completes commands, options and live values in a shell."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from router.cli import console

if TYPE_CHECKING:
    from router.state.records import Attempt

_VARIABLE = "_STEPFARE_COMPLETE"
Shell = Literal["bash", "zsh", "fish"]


def completion(shell: Annotated[Shell, typer.Argument(help="Your shell.")]) -> None:
    """Print the completion script of a shell.

    \b
    stepfare completion bash > ~/.local/share/bash-completion/completions/stepfare
    stepfare completion zsh > "${fpath[1]}/_stepfare"
    stepfare completion fish > ~/.config/fish/completions/stepfare.fish
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    console.out(get_completion_script(prog_name="stepfare", complete_var=_VARIABLE, shell=shell))


def enable_completion() -> None:
    """Let the command line answer a shell that asks it to complete a line."""
    from typer.completion import completion_init  # type: ignore[attr-defined]  # defined there since Typer 0.3

    completion_init()


def complete_books(incomplete: str) -> list[str]:
    """Return the names of price books that begin with a text: the fixed ones and the digests of stored ones."""
    from router.prices.bookstore import BookStore
    from router.prices.data_folders import books_folder

    names = ["latest", "sandbox", "embedded"]
    with contextlib.suppress(Exception):
        names += [stored.digest[:12] for stored in BookStore(books_folder()).all()]
    return _beginning(names, incomplete)


def complete_accelerators(incomplete: str) -> list[str]:
    """Return the accelerators that the product knows and that begin with a text."""
    from pricing.book_file import accelerator_names

    return _beginning(accelerator_names(), incomplete)


def complete_plan_jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs of the plan file that stands before, as far as they begin with a text."""
    names: list[str] = []
    with contextlib.suppress(Exception):
        plan = json.loads(Path(ctx.params["file"]).read_text(encoding="utf-8"))
        names = [job["job"] for job in plan["jobs"]]
    return _beginning(names, incomplete)


def complete_plan_words(incomplete: str) -> list[str]:
    """Return what may follow ``stepfare plan``: the words of its subcommands, and files and folders."""
    from router.cli.commands import TABLE

    return [*_beginning(TABLE.children("plan"), incomplete), *complete_paths(incomplete)]


def complete_paths(incomplete: str) -> list[str]:
    """Return files and folders that begin with a text; hidden ones where the text does."""
    parent, _, start = incomplete.rpartition("/")
    folder = Path(f"{parent}/" if parent or incomplete.startswith("/") else ".")
    paths: list[str] = []
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            if path.name.startswith(start) and (start.startswith(".") or not path.name.startswith(".")):
                shown = f"{incomplete.removesuffix(start)}{path.name}"
                paths.append(f"{shown}/" if path.is_dir() else shown)
    return paths


def complete_jobs(incomplete: str) -> list[str]:
    """Return jobs and attempts of the state that begin with a text; nothing where the state cannot be read."""
    attempts = _attempts()
    return _beginning([*dict.fromkeys(each.job for each in attempts), *(each.id for each in attempts)], incomplete)


def complete_plans(incomplete: str) -> list[str]:
    """Return accepted plans, then jobs and attempts, that begin with a text."""
    plans = dict.fromkeys(attempt.plan for attempt in _attempts())
    return [*complete_jobs(incomplete), *_beginning(plans, incomplete)]


def _attempts() -> list[Attempt]:
    """Return the attempts of the state; a line that is being typed is no place for errors: the command reports them."""
    from router.cli.site_options import open_state_store

    with contextlib.suppress(Exception), open_state_store(makes=False, warns=False) as (_, store):
        return list(store.attempts.find())
    return []


def _beginning(names: Iterable[str], text: str) -> list[str]:
    return [name for name in names if name.startswith(text)]
