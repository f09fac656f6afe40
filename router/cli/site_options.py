"""Shared parts of commands that provision or release machines: state, locks, errors, signals, the acting user."""

from __future__ import annotations

import getpass
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.clock import chosen_clock, wall_clock
from router.cli.console import CommandError, ExitCode
from router.cli.options import length_of_time
from router.render.tables import dollars

if TYPE_CHECKING:
    from router.app.budgets import Held
    from router.app.settings import Opened
    from router.controller.budgets import Source
    from router.controller.context import Site, Tell
    from router.jobs.limits import Limits
    from router.jobs.spec import Job
    from router.state.records import Shortage
    from router.state.store import Store

DEPLOY_HELP = "The deploy file; see `schema deploy`."
CLOUDS_HELP = "The clouds file; see `schema clouds`."
WAIT_HELP = "How long to wait while another command provisions or releases machines."


def who() -> str:
    """Return the acting user and machine, as the audit log records them."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def teller(clock: Callable[[], datetime]) -> Callable[[str, str], None]:
    """Return a function that prints messages about a job to stderr, with the time."""
    return lambda job, text: console.note(f"{clock():%H:%M:%S} {job}: {text}")


@contextmanager
def opened_store(
    deploy: Path | None, clouds: Path | None, *, makes: bool = True, new_state: bool = False
) -> Iterator[tuple[Opened, Store]]:
    """Open the files and the state database, and translate errors into CommandError.

    Without ``makes`` a missing database is not created; a temporary empty one replaces it. A database that is missing
    beside run directories is an error unless ``new_state`` is set.
    """
    from router.app.settings import Files, read_files
    from router.app.state_identity import check_not_lost, open_state
    from router.state.store import Store

    with explained(), ExitStack() as stack:
        opened = read_files(Files(deploy, clouds), dict(os.environ))  # noqa: TID251
        if makes or opened.has_state:
            yield opened, stack.enter_context(open_state(opened, wall_clock(), new_state=new_state, marks=makes))
            return
        if not new_state:
            check_not_lost(opened)
        url = f"sqlite:///{stack.enter_context(TemporaryDirectory(prefix='stepfare-'))}/state.db"
        yield opened, stack.enter_context(Store.open(url, now=wall_clock()))


def remember_planned(jobs: Sequence[Job], plan: str, limits: Limits | None, moment: datetime) -> None:
    """Store job specifications and the limits of a plan, so that `apply` needs only the plan.

    The keys are the digests of the jobs and of the plan. A failure is only reported.
    """
    from router.controller.accepted_limits import keep_limits
    from router.controller.workspaces import spec_json

    try:
        with opened_store(None, None) as (_, store):
            store.put_jobs({job.digest: spec_json(job) for job in jobs}, moment)
            if limits is not None:
                keep_limits(store, plan, limits)
    except (CommandError, InvalidInputError) as error:
        remedy = "give jobs and limits to `apply` with --jobs and --limits"
        console.note(f"what was planned was not stored, {remedy}: {error}", "warning")


def remembered(moment: datetime) -> tuple[tuple[Shortage, ...], Held]:
    """Return the pools with recent shortages, and the budgets of the month with their spending.

    A missing state is not created. If the state cannot be read, nothing is known; this is reported.
    """
    from router.app.budgets import Held, Places, held_to
    from router.prices.home import bills_folder, extract_folder

    try:
        with opened_store(None, None, makes=False) as (_, store):
            return store.shortages(moment), held_to(store, moment, Places(extract_folder(), bills_folder()))
    except (CommandError, InvalidInputError) as error:
        console.note(f"what ran short lately, and what budgets are left, is not known: {error}", "warning")
        return (), Held()


def say_budgets(budgets: Sequence[Source], moment: datetime) -> None:
    """Print the sources of a plan's budgets, where that is not the limits file alone."""
    for each in budgets:
        whose = "hard budget (`stepfare budget`)" if each.hard else "budget (limits file)"
        spent = "by the ledger and bills" if each.counted else "by the limits file"
        console.note(
            f"team {each.team}: {dollars(each.spent)} of the {whose} of {dollars(each.usd)} for {moment:%Y-%m} is "
            f"spent, {spent}"
        )


@contextmanager
def opened_site(
    deploy: Path | None,
    clouds: Path | None,
    *,
    listen: bool,
    makes: bool = True,
    tell: Tell | None = None,
    new_state: bool = False,
) -> Iterator[tuple[Opened, Site]]:
    """Open everything that provisioning needs.

    ``listen`` starts a coordinator that machines can call meanwhile. ``tell`` reports messages about jobs, by default
    on stderr. ``new_state`` is as for :func:`open_state_store`.
    """
    from router.app.controller import listening, nobody_listens, open_site

    clock = chosen_clock()
    tell = tell or teller(clock)
    with opened_store(deploy, clouds, makes=makes, new_state=new_state) as (opened, store):
        if not listen:
            yield opened, open_site(opened, store, nobody_listens(opened, store), clock, wall_clock, tell)
            return
        with listening(opened, store, clock, wall_clock) as home:
            yield opened, open_site(opened, store, home, clock, wall_clock, tell)


def in_turn(site: Site, wait: str) -> AbstractContextManager[object]:
    """Return the lock for provisioning and releasing machines, which is waited for as long as ``--wait`` says.

    Raises InvalidInputError for an invalid duration. Entering the lock raises HeldError if it stays taken.
    """
    from router.controller.worker_pool import one_at_a_time

    seconds = (length_of_time("--wait", wait) or timedelta(0)).total_seconds()
    return one_at_a_time(
        site, within_s=seconds, waiting=lambda held: console.note(f"{held}; waiting for it, {wait} at most")
    )


@contextmanager
def explained() -> Iterator[None]:
    """Translate errors of state, Terraform, clouds and the coordinator into CommandError with exit codes."""
    from providers.errors import CredentialsError, PermissionDeniedError, ProviderError
    from router.controller.errors import NotReleasedError
    from router.state.errors import StateError
    from terraform.errors import TerraformError

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
def terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that half provisioned gangs are released."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def leave_when_asked_again(doing: str) -> None:
    """Report remaining work (``doing``) after an interruption; the next Ctrl-C or SIGTERM ends the process at once.

    Threads that wait for Terraform cannot be ended otherwise. The next command resumes from there.
    """
    console.note(f"\n{doing} (Ctrl-C again leaves that to the next command)")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(ExitCode.INTERRUPTED))
