"""The state in a file does what every database has to do."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from router.state.store import StateStore
from tests.support.state_suite import AttemptsSuite, NewUrl, NotesSuite
from tests.support.state_suite_books import ArchiveSuite, BooksCrashSuite, ClosingSuite
from tests.support.state_suite_budgets import BudgetsSuite
from tests.support.state_suite_console import IdempotencySuite, TasksSuite, WebhooksSuite
from tests.support.state_suite_crashes import CrashSuite, VersionsSuite
from tests.support.state_suite_data import DataCopiesSuite
from tests.support.state_suite_leases import LeaseSuite
from tests.support.state_suite_lists import AppendOnlySuite, AuditSuite, LedgerSuite
from tests.support.state_suite_many import ManySuite
from tests.support.state_suite_notices import NoticesSuite
from tests.support.state_suite_overview import OverviewSuite
from tests.support.state_suite_quotes import QuotesSuite
from tests.support.state_suite_upgrades import UpgradeSuite
from tests.support.state_suite_whole import WholeSuite
from tests.support.state_values import NOW


@pytest.fixture(scope="module")
def new_url(tmp_path_factory: pytest.TempPathFactory) -> NewUrl:
    folder = tmp_path_factory.mktemp("states")
    numbers = itertools.count()
    return lambda: f"sqlite:///{folder}/{next(numbers)}/state.db"


@pytest.fixture(scope="module")
def ready_url(new_url: NewUrl) -> NewUrl:
    made = new_url()
    StateStore.open(made, now=NOW).close()

    def copy() -> str:
        url = new_url()
        path = Path(url.removeprefix("sqlite:///"))
        path.parent.mkdir()
        shutil.copy(made.removeprefix("sqlite:///"), path)
        return url

    return copy


class TestAttempts(AttemptsSuite):
    pass


class TestNotes(NotesSuite):
    pass


class TestNotices(NoticesSuite):
    pass


class TestOverview(OverviewSuite):
    pass


class TestMany(ManySuite):
    pass


class TestLedger(LedgerSuite):
    pass


class TestQuotes(QuotesSuite):
    pass


class TestDataCopies(DataCopiesSuite):
    pass


class TestTasks(TasksSuite):
    pass


class TestIdempotency(IdempotencySuite):
    pass


class TestWebhooks(WebhooksSuite):
    pass


class TestBudgets(BudgetsSuite):
    """Budgets."""


class TestClosing(ClosingSuite):
    pass


class TestArchives(ArchiveSuite):
    pass


class TestWholeStates(WholeSuite):
    pass


class TestUpgrades(UpgradeSuite):
    pass


class TestBooksCrashes(BooksCrashSuite):
    pass


class TestAudit(AuditSuite):
    pass


class TestAppendOnly(AppendOnlySuite):
    pass


class TestLeases(LeaseSuite):
    pass


class TestCrashes(CrashSuite):
    pass


class TestVersions(VersionsSuite):
    pass
