"""Command ``stepfare init``: write a platform team's first clouds, limits, deploy and job files."""

from __future__ import annotations

import os
import shlex
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from pricing.places import PROVISIONABLE_CLOUDS, RegionId
from pricing.problems import InvalidInputError
from pricing.units import format_count
from providers.registry import CLOUDS, CredentialPresence, find_credentials
from router.cli import console
from router.cli.clouds import refuse_unknown_clouds
from router.cli.options import TableOutput, option_error, parse_now
from router.jobs.fields import RefusedError, as_text, suggest
from router.jobs.gang import parse_accelerators
from router.jobs.residency import Residency, residency_refusal, unknown_tokens
from router.render.record_table import json_document
from router.render.starter_files import FILE_NAMES, StarterChoices, starter_files
from router.render.tables import WIDTH

if TYPE_CHECKING:
    from pricing.book import PriceBook

T = TypeVar("T")
_DEFAULT_TEAM, _DEFAULT_ACCELERATORS = "research", "H100:8"
_ANYWHERE = "anywhere"


def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write; made if missing.")] = Path(),
    cloud: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Use this cloud; repeatable.")] = None,
    team: Annotated[
        list[str] | None, typer.Option(metavar="NAME[=USD]", help="A team, and its budget a month; repeatable.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="PLACE", help="Run there only: EEA, UK, US, a region, or anywhere; repeatable."),
    ] = None,
    accelerator: Annotated[
        list[str] | None, typer.Option(metavar="NAME:COUNT", help="A gang for the example job; repeatable.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing: take the defaults.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files; each is kept as NAME.bak.")] = False,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Moment at which the job is checked.")] = None,
    output: TableOutput = "table",
) -> None:
    """Write commented clouds.yaml, limits.yaml, deploy.yaml and jobs/example.yaml for a start.

    Looks for the credentials of each cloud without network and without reading their values out, and asks in a
    terminal for what no option says. All files appear or none, and only after the program's own checks accepted them.
    Files that are there are never replaced without --force. The exit code is 2 if files exist or an answer is missing.

    \b
    stepfare init
    stepfare init fleet --yes --cloud aws --team research=20000 --allow EEA
    """
    from router.app.starter_folder import existing_files, place_files, refusal, take_back_interrupted
    from router.prices.books import load_book

    if not yes and not _is_terminal():
        raise InvalidInputError.single(
            "there is no terminal to ask in",
            remedy="add --yes, and --cloud, --team, --allow and --accelerator where the defaults do not fit",
        )
    moment, book = parse_now(now), load_book("embedded")
    take_back_interrupted(folder)
    if not force and (present := existing_files(folder, FILE_NAMES)):
        raise refusal(folder, present)
    environment, home = os.environ, Path.home()  # noqa: TID251  this command looks for credentials
    found = [find_credentials(name, environment, home) for name, entry in CLOUDS.items() if entry.by_default]
    choices = _choose(
        found, book, {"cloud": cloud, "team": team, "allow": allow, "accelerator": accelerator}, ask=not yes
    )
    backups = place_files(
        folder, starter_files(choices), lambda prepared: _check(prepared, moment, book), replace=force
    )
    undo = _undo_commands(folder, backups)
    following = _next_commands(folder)
    if output == "json":
        console.out(_as_json(folder, found, choices, backups, undo, following))
    else:
        console.out(_as_text(folder, found, choices, backups, undo, following))


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _choose(
    presences: Sequence[CredentialPresence], book: PriceBook, given: Mapping[str, list[str] | None], *, ask: bool
) -> StarterChoices:
    """Return the choices: from options, else from answers, else the defaults."""
    orderable = [presence for presence in presences if presence.cloud in PROVISIONABLE_CLOUDS]
    default = [presence.cloud for presence in orderable if presence.found] or [one.cloud for one in orderable]
    if ask:
        console.note("Clouds on this machine:\n" + "\n".join(_found_lines(presences)))

    def answer(option: str, question: str, default: Sequence[str], parse: Callable[[Sequence[str]], T]) -> T:
        words = given[option]
        if words is not None or not ask:
            return parse(words or default)
        while True:
            text = console.ask_text(question, " ".join(default))
            try:
                return parse(text.replace(",", " ").split())
            except InvalidInputError as error:
                console.show_problems(error)

    clouds = answer("cloud", "Which of them to use", default, lambda words: _parse_clouds(words, book))
    teams = answer("team", "Teams, each with =USD if it has a monthly budget", [_DEFAULT_TEAM], _parse_teams)
    allowed = answer(
        "allow", "Where jobs may run (EEA, UK, US, a region)", [_ANYWHERE], lambda w: _parse_places(w, book)
    )
    gangs = answer(
        "accelerator",
        "Accelerators of the example job",
        [_DEFAULT_ACCELERATORS],
        lambda words: _parse_gangs(words, clouds, allowed, book),
    )
    others = tuple(name for name, entry in CLOUDS.items() if entry.by_default and name not in clouds)
    return StarterChoices(clouds, teams, allowed, gangs, others)


def _parse_clouds(names: Sequence[str], book: PriceBook) -> tuple[str, ...]:
    refuse_unknown_clouds(list(names))
    for name in names:
        if not CLOUDS[name].by_default:
            remedy = "it needs a file of its own: begin with examples/pool"
            raise option_error("--cloud", f"{name} cannot be set up here", remedy)
    sold = {offer.cloud for offer in book.offers}
    for name in names:
        if name not in sold:
            remedy = "leave it out; clouds.yaml takes it in once prices are fetched"
            raise option_error("--cloud", f"{name} has no offer in the embedded book", remedy)
    if not set(names) & PROVISIONABLE_CLOUDS:
        known = ", ".join(name for name in CLOUDS if name in PROVISIONABLE_CLOUDS and CLOUDS[name].by_default)
        what = "machines can be made in none of these clouds" if names else "no cloud is named"
        raise option_error("--cloud", what, f"add one of {known}")
    return tuple(dict.fromkeys(names))


def _parse_teams(words: Sequence[str]) -> Mapping[str, str]:
    from router.jobs.quantities import parse_usd

    teams: dict[str, str] = {}
    for word in words:
        name, sign, budget = word.partition("=")
        try:
            name = as_text(name)
            amount = str(parse_usd(budget)).removeprefix("$").replace(",", "") if sign else ""
        except (RefusedError, ValueError) as error:
            raise option_error("--team", ValueError(f"{word!r}: {error}")) from None
        if name in teams:
            raise option_error("--team", f"{name!r} is given twice", "give it once")
        teams[name] = amount
    if not teams:
        raise option_error("--team", "no team is named", f"write e.g. {_DEFAULT_TEAM}")
    return teams


def _parse_places(words: Sequence[str], book: PriceBook) -> tuple[str, ...]:
    from pydantic import ValidationError

    places = tuple(dict.fromkeys(word for word in words if word.lower() != _ANYWHERE))
    if len(places) < len(set(words)) and places:
        remedy = f"give {_ANYWHERE} alone, or places alone"
        raise option_error("--allow", f"{_ANYWHERE} and places are both given", remedy)
    try:
        unknown = unknown_tokens(Residency.model_validate({"allow": places}), book.regions)
    except ValidationError:
        unknown = [(" ".join(places), None)]
    for token, near in unknown:
        remedy = f"did you mean {near}?" if near else "write a cloud, a region, a country such as DE, or EU, EEA, UK"
        raise option_error("--allow", f"{token!r} is no place of the price book", remedy)
    return places


def _parse_gangs(
    words: Sequence[str], clouds: Sequence[str], allowed: Sequence[str], book: PriceBook
) -> tuple[str, ...]:
    """Return the gangs as NAME:COUNT; InvalidInputError where one of them is nowhere sold as allowed."""
    try:
        gangs = tuple(dict.fromkeys(parse_accelerators(list(words))))
    except RefusedError as error:
        raise option_error("--accelerator", error.what, error.remedy) from None
    known = {accelerator.name for accelerator in book.accelerators}
    residency = Residency.model_validate({"allow": tuple(allowed)})
    for gang in gangs:
        if gang.accelerator not in known:
            what, remedy = (
                f"{gang.accelerator!r} is no accelerator of the price book",
                suggest(gang.accelerator, known, max_names=30),
            )
            raise option_error("--accelerator", what, remedy)
    places = [
        offer
        for offer in book.offers
        if offer.cloud in clouds
        and offer.provisionable
        and (region := book.region(RegionId(offer.cloud, offer.region))) is not None
        and residency_refusal(residency, region) is None
    ]
    sold = {
        (machine.accelerator, machine.accelerator_count)
        for offer in places
        if (machine := book.machine(offer.cloud, offer.instance_type))
    }
    for gang in gangs:
        if not any(name == gang.accelerator and gang.count % count == 0 for name, count in sold):
            where = ", ".join(clouds) + (f" within {', '.join(allowed)}" if allowed else "")
            have = ", ".join(sorted({name for name, _ in sold})) or "nothing"
            raise option_error("--accelerator", f"no machines for {gang} are on sale in {where}", f"sold there: {have}")
    return tuple(map(str, gangs))


def _check(prepared: Path, now: datetime, book: PriceBook) -> None:
    """Load each prepared file as the other commands do. InvalidInputError for what they would refuse."""
    from router.config.book_check import check_against_book, check_limits_against_book
    from router.config.job_files import load_jobs, load_limits
    from router.config.settings_files import load_clouds, load_deploy

    clouds, limits, deploy, job = (prepared / name for name in FILE_NAMES)
    load_clouds(clouds, named=True)
    check_limits_against_book(load_limits(limits), book)
    load_deploy(deploy, named=True)
    check_against_book(load_jobs((job,), now), book)


def _undo_commands(folder: Path, backups: Mapping[str, str]) -> list[str]:
    new = [str(folder / name) for name in FILE_NAMES if name not in backups]
    removal = [shlex.join(["rm", *new])] if new else []
    return [*removal, *(shlex.join(["mv", str(folder / old), str(folder / name)]) for name, old in backups.items())]


def _next_commands(folder: Path) -> list[str]:
    clouds, limits, _, job = (str(folder / name) for name in FILE_NAMES)
    jobs = str(Path(job).parent)
    return [
        shlex.join(["stepfare", "validate", jobs, limits, "--book", "embedded"]),
        shlex.join(["stepfare", "plan", jobs, "--book", "embedded", "--limits", limits]),
        shlex.join(["stepfare", "prices", "refresh", "--clouds", clouds]),
        "stepfare serve --demo",
    ]


def _found_lines(presences: Sequence[CredentialPresence]) -> list[str]:
    return [
        textwrap.fill(
            f"found: {one.place}" if one.found else one.remedy,
            WIDTH,
            initial_indent=f"  {one.cloud:8}",
            subsequent_indent=" " * 10,
            break_on_hyphens=False,
        )
        for one in presences
    ]


def _as_text(
    folder: Path,
    presences: Sequence[CredentialPresence],
    choices: StarterChoices,
    backups: Mapping[str, str],
    undo: Sequence[str],
    following: Sequence[str],
) -> str:
    lines = ["CLOUDS (presence of credentials only; `stepfare doctor` asks the clouds)", *_found_lines(presences), ""]
    lines += [
        f"used: {', '.join(choices.clouds)}",
        "",
        f"WRITTEN, {format_count(len(FILE_NAMES), 'file')}, each checked",
    ]
    lines += [
        f"  {folder / name}" + (f"  (the old one is {folder / backups[name]})" if name in backups else "")
        for name in FILE_NAMES
    ]
    lines += ["", "UNDO", *(f"  {command}" for command in undo), "", "NEXT", *(f"  {command}" for command in following)]
    return "\n".join(lines)


def _as_json(
    folder: Path,
    presences: Sequence[CredentialPresence],
    choices: StarterChoices,
    backups: Mapping[str, str],
    undo: Sequence[str],
    following: Sequence[str],
) -> str:
    document: dict[str, Any] = {
        "clouds": [
            {
                "cloud": one.cloud,
                "found": one.found,
                "place": one.place or None,
                "remedy": one.remedy or None,
                "used": one.cloud in choices.clouds,
            }
            for one in presences
        ],
        "teams": [{"team": team, "budget": budget or None} for team, budget in choices.teams.items()],
        "allow": list(choices.allow),
        "accelerators": list(choices.accelerators),
        "written": [
            {"path": str(folder / name), "backup": str(folder / backups[name]) if name in backups else None}
            for name in FILE_NAMES
        ],
        "undo": list(undo),
        "next": list(following),
    }
    return json_document(document, ascii_only=False)
