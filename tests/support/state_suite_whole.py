"""Tests that every database passes: all of a state in a file, and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing.money import Usd
from router.state.errors import ExistsError, StateError
from router.state.store import StateStore
from tests.support.books_steps import seen, views
from tests.support.state_suite import NewUrl, StateSuite
from tests.support.state_values import NOW, attempt, node


class WholeSuite(StateSuite):
    """Backups of a whole state."""

    def test_a_whole_state_comes_back_just_the_same(self, store: StateStore, new_url: NewUrl, tmp_path: Path) -> None:
        list(views(store, tmp_path))
        store.attempts.add(attempt("a1"), (node("a1", 0), node("a1", 1)))
        store.plans.put_plan("p" * 64, "{}", NOW)
        store.audit.add("anna", "apply", "p" * 64, Usd.parse("3.5"), NOW, gangs=1)
        store.journal.note("a1", "ready", NOW, ranks=2)
        store.whole.write(tmp_path / "state.gz", ())
        store.whole.write(tmp_path / "again.gz", ())
        assert (tmp_path / "state.gz").read_bytes() == (tmp_path / "again.gz").read_bytes()
        with pytest.raises(StateError, match="is no backup but a whole state"):
            store.backups.restore(tmp_path / "state.gz")
        with StateStore.open(new_url(), now=NOW) as other:
            other.whole.restore(tmp_path / "state.gz")
            assert seen(other) == seen(store)
            assert (other.attempts.find(), other.attempts.nodes("a1")) == (
                store.attempts.find(),
                store.attempts.nodes("a1"),
            )
            assert (other.journal.entries(), other.audit.entries()) == (store.journal.entries(), store.audit.entries())

    def test_nothing_is_put_into_a_state_with_something_in_it(
        self, store: StateStore, new_url: NewUrl, tmp_path: Path
    ) -> None:
        store.plans.put_plan("p" * 64, "{}", NOW)
        store.whole.write(tmp_path / "state.gz", ())
        with StateStore.open(new_url(), now=NOW) as other:
            other.attempts.add(attempt("b1"), (node("b1", 0), node("b1", 1)))
            with pytest.raises(ExistsError, match="is not empty"):
                other.whole.restore(tmp_path / "state.gz")
            assert ([a.id for a in other.attempts.find()], other.plans.plan("p" * 64)) == (["b1"], None)
