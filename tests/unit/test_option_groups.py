"""A parameter whose type is a dataclass of options becomes one option for each field, in its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from router.cli.groups import spread_option_groups


@dataclass(frozen=True, slots=True)
class Place:
    """A group of two options, one required."""

    city: Annotated[str, typer.Option(help="A city.")]
    street: Annotated[str | None, typer.Option("--street", "-s", help="A street.")] = None


@dataclass(frozen=True, slots=True)
class Home(Place):
    """A group that inherits: it declares an option anew, which keeps its place, and adds one."""

    street: Annotated[str | None, typer.Option("--street", "-s", help="The own street.")] = None
    house: Annotated[int, typer.Option(min=1, help="The house.")] = 1


def _run(*words: str) -> tuple[int, str]:
    """Return the exit code and the output of a command with a group."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)

    def go(
        who: Annotated[str, typer.Argument()], place: Home, fast: Annotated[bool, typer.Option("--fast")] = False
    ) -> None:
        """Go there."""
        typer.echo(f"{who} {place} {fast}")

    app.command()(spread_option_groups(go))
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.output


def test_the_command_gets_the_group_as_one_value() -> None:
    assert _run("ann", "--city", "Ulm", "-s", "Main", "--fast") == (
        0,
        "ann Home(city='Ulm', street='Main', house=1) True\n",
    )


def test_help_has_the_options_in_the_order_of_fields_between_the_parameters() -> None:
    code, text = _run("--help")
    assert code == 0
    assert "Go there." in text
    places = [text.index(words) for words in ("--city", "The own street.", "--house", "--fast")]
    assert places == sorted(places)
    assert "A street." not in text


def test_fields_without_a_default_are_required_and_bounds_hold() -> None:
    assert _run("ann")[0] == 2
    assert _run("ann", "--city", "Ulm", "--house", "0")[0] == 2


def test_a_command_without_groups_is_itself() -> None:
    def go(who: str) -> None:
        """Go."""

    assert spread_option_groups(go) is go
