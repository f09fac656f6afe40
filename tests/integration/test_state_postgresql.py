"""A state on a PostgreSQL server, beyond what every database has to do: what goes wrong there is said clearly."""

from __future__ import annotations

import contextlib
import signal
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
from tests.support.state_values import NOW, NewUrl, entry

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def new_url(postgres: PostgresHere) -> NewUrl:
    return postgres.url_of_new_schema


def test_the_owner_of_the_tables_administers_a_state_and_its_role_is_recorded(
    postgres: PostgresHere, ready_url: NewUrl
) -> None:
    """Another role that may write every table is no administrator."""
    url = ready_url()
    schema = url.rpartition("%3D")[2]
    for statement in (
        f"CREATE ROLE eve LOGIN PASSWORD '{PASSWORD}'",
        f"GRANT USAGE ON SCHEMA {schema} TO eve",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO eve",
    ):
        postgres.say(statement, "shared")
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


class TestFromOneToTheOther:
    def test_books_move_between_a_file_and_a_server(
        self, store: StateStore, url: str, new_url: NewUrl, tmp_path: Path
    ) -> None:
        """From a server to a file, and back to another place on the server."""
        *_, last = books_steps.views(store, tmp_path)
        store.backups.write(tmp_path / "postgres.gz")
        with (
            StateStore.open(f"sqlite:///{tmp_path}/state.db", now=NOW) as file,
            StateStore.open(new_url(), now=NOW) as again,
        ):
            file.backups.restore(tmp_path / "postgres.gz")
            assert books_steps.seen(file) == last
            file.backups.write(tmp_path / "file.gz")
            again.backups.restore(tmp_path / "file.gz")
            assert books_steps.seen(again) == last
            assert again.archives.check(tmp_path / books_steps.LATER) == file.archives.all()[-1]


class TestServer:
    @pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
    def test_the_schemes_that_people_write(self, postgres: PostgresHere, scheme: str) -> None:
        with StateStore.open(postgres.url(postgres.new_database(), scheme=scheme), now=NOW) as store:
            assert store.ledger.head() == 0

    def test_two_states_in_schemas_of_one_database(self, postgres: PostgresHere) -> None:
        url = postgres.url(postgres.new_database())
        with StateStore.open(url, now=NOW) as first:
            with first._database.write() as connection:
                connection.exec_driver_sql("CREATE SCHEMA another")
            with StateStore.open(f"{url}?options=-csearch_path%3Danother", now=NOW) as second:
                first.ledger.add([entry()])
                assert (first.id != second.id, first.ledger.head(), second.ledger.head()) == (True, 1, 0)

    def test_the_wrong_password(self, postgres: PostgresHere) -> None:
        url = postgres.url(postgres.new_database(), password="wr%40ng-one")
        with pytest.raises(StateError, match=f"127.0.0.1:{postgres.port}") as caught:
            StateStore.open(url, now=NOW)
        _says(caught.value, "user, password and database")
        assert not isinstance(caught.value, BusyError)
        assert "wr@ng" not in caught.value.what

    def test_no_such_database(self, postgres: PostgresHere) -> None:
        with pytest.raises(StateError, match="nowhere") as caught:
            StateStore.open(postgres.url("nowhere"), now=NOW)
        _says(caught.value, "make the database")

    def test_no_right_to_make_tables(self, postgres: PostgresHere) -> None:
        name = postgres.new_database()
        postgres.say(f"ALTER DATABASE {name} OWNER TO postgres")
        with pytest.raises(StateError, match="permission denied") as caught:
            StateStore.open(postgres.url(name), now=NOW)
        _says(caught.value, "the right")

    def test_a_server_that_only_reads(self, postgres: PostgresHere) -> None:
        name = postgres.new_database()
        url = postgres.url(name)
        StateStore.open(url, now=NOW).close()
        postgres.say(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        with StateStore.open(url, now=NOW) as store:
            assert store.ledger.head() == 0
            with pytest.raises(StateError, match="read-only") as caught:
                store.values.set("a", "b")
        _says(caught.value, "only reads")

    def test_tables_of_others_are_left_alone(self, postgres: PostgresHere, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE facts (name text)")
        with pytest.raises(StateError, match="facts"):
            StateStore.open(url, now=NOW)
        with psycopg.connect(url, autocommit=True) as connection:
            assert connection.execute("SELECT count(*) FROM facts").fetchone() == (0,)
            assert connection.execute("SELECT to_regclass('ledger')").fetchone() == (None,)

    def test_nothing_acknowledged_is_lost_when_the_server_crashes(self) -> None:
        """On a server of its own: what all other tests wrote would be replayed when it starts again."""
        with postgres_here() as postgres, contextlib.ExitStack() as stack:
            url = postgres.url_of_new_schema()
            store = stack.enter_context(StateStore.open(url, now=NOW))
            for number in range(20):
                store.ledger.append([entry(f"k{number}")], after=number)
            postgres.stop(signal.SIGQUIT)
            with pytest.raises(BusyError, match="cannot be reached") as caught:
                store.ledger.head()
            _says(caught.value, "try again")
            with pytest.raises(BusyError):
                StateStore.open(url, now=NOW)
            postgres.start()
            # The store finds it again by itself.
            assert store.ledger.head() == 20
            assert store.ledger.append([entry("after")], after=20) == 21

    def test_a_lock_that_is_held_for_too_long(self, postgres: PostgresHere, url: str) -> None:
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
