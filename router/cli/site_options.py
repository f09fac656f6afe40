"""Shared parts of commands that provision or release machines: state, locks, errors, signals, the acting user."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from pricing.problems import InvalidInputError
from providers.errors import CredentialsError, PermissionDeniedError, ProviderError
from router.access.identity import local_operator
from router.cli import console
from router.cli.console import CommandError, ExitCode
from router.cli.options import chosen_clock, parse_duration_option, wall_clock
from router.prices.data_folders import check_home, data_folder, is_home_new, quotes_folder
from router.state.errors import StateError
from terraform.errors import TerraformError

if TYPE_CHECKING:
    from router.app.queries.context import QueryContext
    from router.app.settings import AppSettings
    from router.config.plan_files import StoredQuote
    from router.controller.context import ControllerContext, Reporter
    from router.jobs.limits import Limits
    from router.jobs.spec import Job
    from router.planning.document.plan import Plan
    from router.state.store import StateStore

WaitOption = Annotated[
    str,
    typer.Option(metavar="DURATION", help="How long to wait while another command provisions or releases machines."),
]


@dataclass(frozen=True, slots=True)
class SettingsOptions:
    """Options of every command with a state: the files to read, None is the default place."""

    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help="The deploy file; see `schema deploy`.")] = None
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help="The clouds file; see `schema clouds`.")] = None


R = TypeVar("R")
# How many jobs a warning names.
_MOST_NAMED = 3
DEFAULT_FILES: Final = SettingsOptions()


def acting_user() -> str:
    """Return the acting user and machine, as the audit log records them."""
    return f"{_account_name()}@{socket.gethostname()}"


def _account_name() -> str:
    """Return the account of the real user id; for root the one that ran sudo. No other variable is believed."""
    if not hasattr(os, "getuid"):
        return os.getlogin()
    from pwd import getpwuid

    uid = os.getuid()
    if uid == 0 and (sudo_user := os.environ.get("SUDO_USER")):  # noqa: TID251
        return sudo_user
    try:
        return getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def job_message_printer(clock: Callable[[], datetime]) -> Callable[[str, str], None]:
    """Return a function that prints messages about a job to stderr, with the time."""
    return lambda job, text: console.note(f"{clock():%H:%M:%S} {job}: {text}")


def read_own_settings(settings_files: SettingsOptions = DEFAULT_FILES) -> AppSettings:
    """Return the settings of these files and of the environment. InvalidInputError for what is wrong in them."""
    from router.app.settings import read_settings

    return read_settings(dict(os.environ), settings_files.deploy, settings_files.clouds)  # noqa: TID251


@contextmanager
def open_state_store(
    settings_files: SettingsOptions = DEFAULT_FILES,
    *,
    makes: bool = True,
    new_state: bool = False,
    needs_home: bool = True,
    warns: bool = True,
) -> Iterator[tuple[AppSettings, StateStore]]:
    """Open the files and the state database, and translate errors into CommandError.

    Without ``makes`` a missing database is not created; a temporary empty one replaces it. A database that is missing
    beside run directories is an error unless ``new_state`` is set. So is then a STEPFARE_HOME that does not exist,
    unless the command is about something else than the state and does not need it (``needs_home``). ``warns``: running
    gangs that nobody watches are said.
    """
    from router.app.settings import check_not_lost, open_state
    from router.state.store import StateStore

    with translate_errors(), ExitStack() as stack:
        opened = read_own_settings(settings_files)
        if makes:
            note_new_home()
        if makes or opened.has_state:
            store = stack.enter_context(open_state(opened, wall_clock(), new_state=new_state, marks=makes))
            if warns:
                _warn_of_unwatched(store)
            yield opened, store
            return
        if needs_home:
            check_home()
        if not new_state:
            check_not_lost(opened)
        url = f"sqlite:///{stack.enter_context(TemporaryDirectory(prefix='stepfare-'))}/state.db"
        yield opened, stack.enter_context(StateStore.open(url, now=wall_clock()))


def _warn_of_unwatched(store: StateStore) -> None:
    if jobs := store.watchers.unwatched_jobs(wall_clock()):
        more = f" and {len(jobs) - _MOST_NAMED} more" if len(jobs) > _MOST_NAMED else ""
        names = f"{', '.join(jobs[:_MOST_NAMED])}{more}"
        console.note(f"nobody watches running gangs, which cost money: {names}; run `stepfare watch`", "warning")


@contextmanager
def open_state_if_any() -> Iterator[StateStore]:
    """Open the state for a command that is about something else; an empty one replaces a missing one."""
    with open_state_store(makes=False, needs_home=False) as (_, store):
        yield store


@contextmanager
def warn_if_unreadable(what: str) -> Iterator[None]:
    """Report a state that cannot be read as ``what`` is therefore not known or done, and go on after the block."""
    try:
        yield
    except (CommandError, InvalidInputError) as error:
        console.note(f"{what}: {error}", "warning")


def ask_state(read: Callable[[StateStore], R], otherwise: R, unknown: str) -> R:
    """Return what is read from the state; if it cannot be read, report ``unknown`` and return ``otherwise``."""
    try:
        with open_state_if_any() as store:
            return read(store)
    except (CommandError, InvalidInputError) as error:
        console.note(f"{unknown}: {error}", "warning")
        return otherwise


def note_new_home() -> None:
    """Say that the folder that STEPFARE_HOME names does not exist yet: it may be misspelt."""
    if is_home_new():
        console.note(f"{data_folder()}, which STEPFARE_HOME names, is new: what is stored begins there")


def own_context(settings: AppSettings, store: StateStore, clock: Callable[[], datetime]) -> QueryContext:
    """Return the context of queries for whoever runs the command."""
    from router.app.queries.context import QueryContext

    return QueryContext(settings, store, clock, local_operator(acting_user()))


@contextmanager
def open_query_context(moment: datetime) -> Iterator[QueryContext]:
    """Open the state for queries of whoever runs the command; a missing state is not created.

    If the state cannot be read, an empty one replaces it; this is reported.
    """
    from router.app.settings import AppSettings
    from router.deploy.deploy_settings import Deploy
    from router.prices.cloud_settings import Clouds, LoadedClouds
    from router.state.store import StateStore

    with ExitStack() as stack:
        try:
            settings, store = stack.enter_context(open_state_store(makes=False, needs_home=False))
        except (CommandError, InvalidInputError) as error:
            console.note(f"what the state holds is not known: {error}", "warning")
            settings = AppSettings(Deploy(), LoadedClouds(Clouds(), {}), data_folder(), {})
            url = f"sqlite:///{stack.enter_context(TemporaryDirectory(prefix='stepfare-'))}/state.db"
            store = stack.enter_context(StateStore.open(url, now=wall_clock()))
        with translate_errors():
            yield own_context(settings, store, lambda: moment)


def list_own_quotes(job: str | None = None) -> tuple[StoredQuote, ...]:
    """Return the stored quotes of that job, None is all, the oldest first. Without a state only files are read."""
    from router.app.stored_quotes import list_stored_quotes

    if not _has_state():
        return list_stored_quotes(quotes_folder(), None, job=job)[::-1]
    from router.app.queries.quotes import list_quotes

    with open_query_context(wall_clock()) as context:
        return list_quotes(context, job)[::-1]


def find_own_quote(name: str) -> StoredQuote:
    """Return a stored quote by its id or first digits. InvalidInputError. Without a state only files are read."""
    from router.app.stored_quotes import find_stored_quote

    if not _has_state():
        return find_stored_quote(quotes_folder(), None, name)
    from router.app.queries.quotes import find_quote

    with open_query_context(wall_clock()) as context:
        return find_quote(context, name)


def _has_state() -> bool:
    """Return whether there is a state; where the settings cannot be read, opening it says so."""
    try:
        return read_own_settings().has_state
    except InvalidInputError:
        return True


def store_plan(plan: Plan, plan_text: str, jobs: Sequence[Job], limits: Limits | None) -> None:
    """Store a plan that was written, its jobs and its limits, so that `apply` and later plans of its name find them.

    A failure is only reported.
    """
    from router.app.plan import store_plan_inputs
    from router.planning.document.plan_json import plan_content

    digest: str = plan_content(plan)["digest"]
    unstored = "what was planned was not stored, give jobs and limits to `apply` with --jobs and --limits"
    with warn_if_unreadable(unstored), open_state_store() as (_, store):
        store_plan_inputs(store, jobs, digest, limits, plan.as_of)
        store.made_plans.put(digest, plan_text, plan.as_of, wall_clock(), acting_user(), plan.name)


def load_previous_plan(since: str, name: str, now: datetime) -> Plan | None:
    """Return the plan in a file, or with ``last`` the last one of that name; None where the state has none.

    InvalidInputError for a file that is no plan; CommandError for a state that cannot be read.
    """
    from router.config.plan_files import read_plan
    from router.controller.plans import last_plan

    if since != "last":
        return read_plan(Path(since))
    with open_state_if_any() as store:
        return last_plan(store, name, now)


@contextmanager
def open_controller_session(
    settings_files: SettingsOptions,
    *,
    listen: bool,
    makes: bool = True,
    tell: Reporter | None = None,
    new_state: bool = False,
    needs_home: bool = True,
    warns: bool = True,
) -> Iterator[tuple[AppSettings, ControllerContext]]:
    """Open everything that provisioning needs.

    ``listen`` starts a coordinator that machines can call meanwhile. ``tell`` reports messages about jobs, by default
    on stderr. ``new_state``, ``needs_home`` and ``warns`` are as for :func:`open_state_store`.
    """
    from router.app.controller import home_without_coordinator, open_controller, open_coordinator

    clock = chosen_clock()
    tell = tell or job_message_printer(clock)
    state = open_state_store(settings_files, makes=makes, new_state=new_state, needs_home=needs_home, warns=warns)
    with state as (opened, store):
        if not listen:
            yield (
                opened,
                open_controller(opened, store, home_without_coordinator(opened, store), clock, wall_clock, tell),
            )
            return
        with open_coordinator(opened, store, clock, wall_clock) as home:
            yield opened, open_controller(opened, store, home, clock, wall_clock, tell)


def lock_provisioning(site: ControllerContext, wait: str) -> AbstractContextManager[object]:
    """Return the lock for provisioning and releasing machines, which is waited for as long as ``--wait`` says.

    Raises InvalidInputError for an invalid duration. Entering the lock raises HeldError if it stays taken.
    """
    from router.controller.context import apply_lock

    seconds = (parse_duration_option("--wait", wait) or timedelta(0)).total_seconds()
    return apply_lock(
        site, within_s=seconds, waiting=lambda held: console.note(f"{held}; waiting for it, {wait} at most")
    )


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate errors of state, Terraform, clouds and the coordinator into CommandError with exit codes."""
    from router.controller.history.lifecycle import NotReleasedError

    try:
        yield
    except (StateError, TerraformError) as error:
        raise CommandError(str(error), remedy=error.remedy) from None
    except NotReleasedError as error:
        raise CommandError(str(error), ExitCode.PARTIAL, "see `stepfare sweep`") from None
    except ProviderError as error:
        code = ExitCode.CREDENTIALS if isinstance(error, CredentialsError | PermissionDeniedError) else ExitCode.FAILURE
        raise CommandError(str(error), code) from None
    except Exception as error:
        # The class is recognised by name, because its module imports a web server.
        if type(error).__name__ == "ListenError":
            raise CommandError(str(error), remedy=getattr(error, "remedy", "")) from None
        raise


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that half provisioned gangs are released."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def exit_on_second_interrupt(doing: str) -> None:
    """Report remaining work (``doing``) after an interruption; the next Ctrl-C or SIGTERM ends the process at once.

    Threads that wait for Terraform cannot be ended otherwise. The next command resumes from there.
    """
    console.note(f"\n{doing} (Ctrl-C again leaves that to the next command)")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(ExitCode.INTERRUPTED))
