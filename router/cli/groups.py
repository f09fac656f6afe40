"""Nested groups of commands whose modules are imported only when a command is called, so that help is quick."""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Final, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from router.cli.console import WORDS_AFTER_DASHES

_NEGATIVE: Final = re.compile(r"-[0-9][0-9.,]*")


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One command: the line that help shows for it, and its place, the module and the function in ``router.cli``."""

    help: str
    place: str


#: What SkyPilot, dstack, Slurm and container tools call what is done here by another command.
WORDS_OF_OTHERS: Final = {
    "ps": "status",
    "queue": "status",
    "squeue": "status",
    "list": "status",
    "up": "apply",
    "launch": "apply",
    "run": "apply",
    "submit": "apply",
    "sbatch": "apply",
    "down": "destroy",
    "stop": "destroy",
    "kill": "destroy",
    "cancel": "destroy",
    "scancel": "destroy",
    "delete": "destroy",
    "attach": "logs",
    "cost": "showback",
    "costs": "showback",
    "cost-report": "showback",
    "report": "showback",
    "show-gpus": "offers",
    "gpus": "offers",
    "gpu": "offers",
    "offer": "offers",
    "price": "estimate",
    "optimize": "plan",
    "check": "doctor",
    "server": "serve",
    "ui": "serve",
    "dashboard": "serve",
}


@dataclass(frozen=True, slots=True)
class CommandTable:
    """All commands by their words ("plan", "plan show"), groups by their word, sections of help by their title."""

    commands: Mapping[str, CommandEntry]
    groups: Mapping[str, str]
    sections: Mapping[str, Sequence[str]]

    def children(self, group: str) -> tuple[str, ...]:
        """Return the last words of the commands of a group, in the order of the table."""
        return tuple(name.removeprefix(f"{group} ") for name in self.commands if name.startswith(f"{group} "))

    def suggestion(self, words: str) -> str:
        """Return "; did you mean ...?" for a command that does not exist, or nothing."""
        first = words.split(maxsplit=1)[0]
        meant = WORDS_OF_OTHERS.get(words)
        if meant is not None:
            return f"; what other tools call {words} is here: stepfare {meant}"
        known = [name for name in self.commands if name.startswith(f"{first} ")] if " " in words else []
        near = difflib.get_close_matches(words, known or [*self.commands, *self.groups], n=1)
        return f"; did you mean {' or '.join(near or known)}?" if near or known else ""


class Command(TyperCommand):
    """A command that knows how many words stood behind ``--``, which the parser takes out.

    ``further`` are the commands that begin with its own word, each with its line of help.
    """

    further: Sequence[tuple[str, str]] = ()

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if self.further:
            with formatter.section("Further commands"):
                formatter.write_dl(list(self.further))
        super().format_epilog(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember the words behind ``--``, then parse.

        A negative number is an argument, whose own parser says what is wrong with it: no option is called -1.
        """
        if any(_NEGATIVE.fullmatch(word) for word in args):
            ctx.ignore_unknown_options = True
        ctx.meta[WORDS_AFTER_DASHES] = len(args) - args.index("--") - 1 if "--" in args else None
        rest: list[str] = super().parse_args(ctx, args)
        return rest


class CommandGroup(TyperGroup):
    """Commands of a table that share their first word. Contexts are Any: their class is private to Typer."""

    table: CommandTable
    word: str

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(self.table.children(self.word))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        return load_command(self.table, f"{self.word} {cmd_name}")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, or say which one was probably meant."""
        name = f"{self.word} {args[0]}"
        if name not in self.table.commands and not args[0].startswith("-"):
            ctx.fail(f"no such command {name!r}{self.table.suggestion(name)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            children = self.table.children(self.word)
            formatter.write_dl([(child, self.table.commands[f"{self.word} {child}"].help) for child in children])


class RootGroup(TyperGroup):
    """The command line's first level: commands and groups of :attr:`table`, by what one wants to do."""

    table: CommandTable

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return [word for words in self.table.sections.values() for word in words]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        if cmd_name in self.table.groups:
            return load_group(self.table, cmd_name)
        return load_command(self.table, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; ``plan show FILE`` is a command of its own although ``plan PATH`` is one too."""
        two = " ".join(args[:2])
        if args[0] not in self.table.groups and len(args) > 1 and two in self.table.commands:
            return two, load_command(self.table, two), args[2:]
        if args[0] not in self.list_commands(ctx) and not args[0].startswith("-"):
            ctx.fail(f"no such command {args[0]!r}{self.table.suggestion(args[0])}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        for title, words in self.table.sections.items():
            with formatter.section(title):
                formatter.write_dl([(word, self._line(word)) for word in words])

    def _line(self, word: str) -> str:
        children = ", ".join(self.table.children(word))
        help_line = self.table.groups[word] if word in self.table.groups else self.table.commands[word].help
        return f"{help_line} ({children})" if children else help_line


def load_command(table: CommandTable, name: str) -> Any:
    """Import a command's module and return its command, None if the table has no such name."""
    entry = table.commands.get(name)
    if entry is None:
        return None
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    module, _, function = entry.place.partition(":")
    app.command(name=name, cls=Command)(
        spread_option_groups(getattr(importlib.import_module(f"router.cli.{module}"), function))
    )
    command: Any = get_command(app)
    command.further = [(f"{name} {child}", table.commands[f"{name} {child}"].help) for child in table.children(name)]
    return command


def spread_option_groups(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with an option for each field of its option groups, in their place.

    An option group is a parameter whose type is a dataclass of options: they are declared once, for all its commands.
    """
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    groups: dict[str, Any] = {each.name: each.annotation for each in parameters if is_dataclass(each.annotation)}
    if not groups:
        return function

    def call(**values: Any) -> Any:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        return function(**values)

    flat = [option for each in parameters for option in _options_of(each)]
    call.__doc__, call.__module__ = function.__doc__, function.__module__
    call.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    call.__annotations__ = {}
    return call


def _options_of(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Yield the parameter, or one for each option of its group; all by keyword, as a command is called."""
    if not is_dataclass(parameter.annotation):
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        return
    types = get_type_hints(parameter.annotation, include_extras=True)
    for field in fields(parameter.annotation):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[field.name]
        )


def load_group(table: CommandTable, word: str) -> CommandGroup:
    """Return a group of the table, with help of its own."""
    group = CommandGroup(name=word, help=table.groups[word], no_args_is_help=True, rich_markup_mode=None)
    group.table, group.word = table, word
    return group
