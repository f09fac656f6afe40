"""The state on a PostgreSQL server does what every database has to do, and what goes wrong there is said clearly."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import psycopg
import pytest

from router.access.identity import local_operator
from router.app.queries.approvals import ApprovalRefusedError, StateRules, set_approval_rules, state_rules
from router.app.queries.context import QueryContext
from router.app.settings import AppSettings
from router.controller.accept.approval import ApprovalRules
from router.deploy.deploy_settings import Deploy
from router.prices.cloud_settings import Clouds, LoadedClouds
from router.state import database
from router.state.errors import BusyError, StateError
from router.state.store import StateStore
from tests.support import books_steps
from tests.support.postgres_here import PASSWORD, PASSWORD_IN_URL, USER, PostgresHere, postgres_here
from tests.support.state_suite import AttemptsSuite, NewUrl, NotesSuite, StateSuite
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
from tests.support.state_values import NOW, entry

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresHere]:
    with postgres_here() as server:
        yield server


@pytest.fixture(scope="module")
def new_url(server: PostgresHere) -> NewUrl:
    return server.url_of_new_schema


@pytest.fixture(scope="module")
def ready_url(new_url: NewUrl) -> NewUrl:
    def make() -> str:
        url = new_url()
        StateStore.open(url, now=NOW).close()
        return url

    return make


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


def test_the_owner_of_the_tables_administers_a_state_and_its_role_is_recorded(
    server: PostgresHere, ready_url: NewUrl
) -> None:
    """Another role that may write every table is no administrator."""
    url = ready_url()
    schema = url.rpartition("%3D")[2]
    for statement in (
        f"CREATE ROLE eve LOGIN PASSWORD '{PASSWORD}'",
        f"GRANT USAGE ON SCHEMA {schema} TO eve",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO eve",
    ):
        server.say(statement, "shared")
    rules = ApprovalRules.model_validate({"approvers": [{"name": "ana", "database_user": "ana_db"}]})
    with StateStore.open(url, now=NOW) as store:
        assert store.administration.problem() == ""
        entry = set_approval_rules(query_of(store), rules)
        assert entry.details["database_user"] == USER
    with StateStore.open(url.replace(f"//{USER}:", "//eve:"), now=NOW) as store:
        assert store.administration.session == {"database_user": "eve"}
        with pytest.raises(ApprovalRefusedError, match="eve does not own the tables of the PostgreSQL database"):
            set_approval_rules(query_of(store), rules)
        assert state_rules(store) == StateRules(rules, "ana@desk", NOW)


def query_of(store: StateStore) -> QueryContext:
    settings = AppSettings(Deploy(), LoadedClouds(Clouds(), {}), Path(), {})
    return QueryContext(settings, store, lambda: NOW, local_operator("ana@desk"))


class TestAppendOnly(AppendOnlySuite):
    @pytest.mark.parametrize("table", ["ledger", "audit_log", "journal"])
    def test_a_table_is_not_emptied(self, filled: StateStore, table: str) -> None:
        with pytest.raises(StateError, match="append-only"), filled._database.write() as connection:
            connection.exec_driver_sql(f"TRUNCATE {table}")
        assert (filled.ledger.head(), len(filled.audit.entries()), len(filled.journal.entries())) == (2, 2, 2)


class TestLeases(LeaseSuite):
    pass


class TestCrashes(CrashSuite):
    pass


class TestVersions(VersionsSuite):
    pass


class TestFromOneToTheOther(StateSuite):
    def test_books_move_between_a_file_and_a_server(
        self, store: StateStore, url: str, new_url: NewUrl, tmp_path: Path
    ) -> None:
        """From a server to a file, and back to another place on the server."""
        *_, last = books_steps.views(store, tmp_path)
        store.backups.write(tmp_path / "server.gz")
        with (
            StateStore.open(f"sqlite:///{tmp_path}/state.db", now=NOW) as file,
            StateStore.open(new_url(), now=NOW) as again,
        ):
            file.backups.restore(tmp_path / "server.gz")
            assert books_steps.seen(file) == last
            file.backups.write(tmp_path / "file.gz")
            again.backups.restore(tmp_path / "file.gz")
            assert books_steps.seen(again) == last
            assert again.archives.check(tmp_path / books_steps.LATER) == file.archives.all()[-1]


class TestServer(StateSuite):
    @pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
    def test_the_schemes_that_people_write(self, server: PostgresHere, scheme: str) -> None:
        with StateStore.open(server.url(server.new_database(), scheme=scheme), now=NOW) as store:
            assert store.ledger.head() == 0

    def test_two_states_in_schemas_of_one_database(self, server: PostgresHere) -> None:
        url = server.url(server.new_database())
        with StateStore.open(url, now=NOW) as first:
            with first._database.write() as connection:
                connection.exec_driver_sql("CREATE SCHEMA another")
            with StateStore.open(f"{url}?options=-csearch_path%3Danother", now=NOW) as second:
                first.ledger.add([entry()])
                assert (first.id != second.id, first.ledger.head(), second.ledger.head()) == (True, 1, 0)

    def test_the_wrong_password(self, server: PostgresHere) -> None:
        url = server.url(server.new_database(), password="wr%40ng-one")
        with pytest.raises(StateError, match=f"127.0.0.1:{server.port}") as caught:
            StateStore.open(url, now=NOW)
        _says(caught.value, "user, password and database")
        assert not isinstance(caught.value, BusyError)
        assert "wr@ng" not in caught.value.what

    def test_no_such_database(self, server: PostgresHere) -> None:
        with pytest.raises(StateError, match="nowhere") as caught:
            StateStore.open(server.url("nowhere"), now=NOW)
        _says(caught.value, "make the database")

    def test_no_right_to_make_tables(self, server: PostgresHere) -> None:
        name = server.new_database()
        server.say(f"ALTER DATABASE {name} OWNER TO postgres")
        with pytest.raises(StateError, match="permission denied") as caught:
            StateStore.open(server.url(name), now=NOW)
        _says(caught.value, "the right")

    def test_a_server_that_only_reads(self, server: PostgresHere) -> None:
        name = server.new_database()
        url = server.url(name)
        StateStore.open(url, now=NOW).close()
        server.say(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        with StateStore.open(url, now=NOW) as store:
            assert store.ledger.head() == 0
            with pytest.raises(StateError, match="read-only") as caught:
                store.values.set("a", "b")
        _says(caught.value, "only reads")

    def test_tables_of_others_are_left_alone(self, server: PostgresHere, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE facts (name text)")
        with pytest.raises(StateError, match="facts"):
            StateStore.open(url, now=NOW)
        with psycopg.connect(url, autocommit=True) as connection:
            assert connection.execute("SELECT count(*) FROM facts").fetchone() == (0,)
            assert connection.execute("SELECT to_regclass('ledger')").fetchone() == (None,)

    def test_nothing_acknowledged_is_lost_when_the_server_crashes(self) -> None:
        """On a server of its own: what all other tests wrote would be replayed when it starts again."""
        with postgres_here() as server, contextlib.ExitStack() as stack:
            url = server.url_of_new_schema()
            store = stack.enter_context(StateStore.open(url, now=NOW))
            for number in range(20):
                store.ledger.append([entry(f"k{number}")], after=number)
            server.stop(signal.SIGQUIT)
            with pytest.raises(BusyError, match="cannot be reached") as caught:
                store.ledger.head()
            _says(caught.value, "try again")
            with pytest.raises(BusyError):
                StateStore.open(url, now=NOW)
            server.start()
            # The store finds it again by itself.
            assert store.ledger.head() == 20
            assert store.ledger.append([entry("after")], after=20) == 21

    def test_a_lock_that_is_held_for_too_long(self, server: PostgresHere, url: str) -> None:
        StateStore.open(url, now=NOW).close()
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(database, "_SESSION", ("SET lock_timeout = '50ms'",)))
            store, other = (stack.enter_context(StateStore.open(url, now=NOW)) for _ in range(2))
            with other._database.write("ledger"), pytest.raises(BusyError) as caught:
                store.ledger.add([entry()])
            assert store.ledger.add([entry()]) == 1
        _says(caught.value, "try again")


def _says(error: StateError, remedy: str) -> None:
    assert remedy in error.remedy
    for secret in (PASSWORD, PASSWORD_IN_URL, f"{USER}:"):
        assert secret not in error.what + error.remedy + repr(error)
    assert error.__cause__ is None
