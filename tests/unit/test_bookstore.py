"""The stored books: the pointer names a whole book or the one before, whatever happens in between."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pricing.book import PriceBook
from pricing.problems import InvalidInputError
from router.prices import bookstore
from router.prices.bookstore import BookStore
from tests.support.made_up_book import book, offer

FIRST = book([offer("aws/north-1", "p9.48xlarge", "spot", "20")])
SECOND = replace(
    FIRST, as_of=FIRST.as_of + timedelta(days=1), offers=(offer("aws/north-1", "p9.48xlarge", "spot", "21"),)
)


@pytest.fixture
def store(tmp_path: Path) -> BookStore:
    return BookStore(tmp_path / "books")


def commit(store: BookStore, what: PriceBook) -> str:
    with store.lock():
        return store.commit(what).digest


def latest(store: BookStore) -> PriceBook:
    stored = store.latest()
    assert stored is not None
    return store.load(stored)


def test_nothing_stored_is_nothing(store: BookStore) -> None:
    assert store.latest() is None
    assert store.all() == ()
    assert store.newest_sound() == (None, ())


def test_what_was_stored_comes_back(store: BookStore) -> None:
    commit(store, FIRST)
    assert latest(store) == FIRST
    assert latest(store).digest == FIRST.digest
    commit(store, SECOND)
    assert latest(store) == SECOND
    assert [stored.digest for stored in store.all()] == [SECOND.digest, FIRST.digest]


def test_an_older_one_can_be_the_latest_again(store: BookStore) -> None:
    commit(store, FIRST)
    commit(store, SECOND)
    with store.lock():
        store.point_to(store.find(FIRST.digest[:10]))
    assert latest(store) == FIRST


@pytest.mark.parametrize("digest", ["0" * 8, ""])
def test_a_digest_that_names_none_or_several_is_refused(store: BookStore, digest: str) -> None:
    commit(store, FIRST)
    commit(store, SECOND)
    with pytest.raises(InvalidInputError, match=r"no stored book|2 stored books"):
        store.find(digest)


def test_a_changed_file_is_refused_and_the_one_before_is_built_upon(store: BookStore) -> None:
    commit(store, FIRST)
    commit(store, SECOND)
    stored = store.latest()
    assert stored is not None
    path = store.folder / stored.file
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidInputError, match="changed or damaged"):
        store.load(stored)
    sound, warnings = store.newest_sound()
    assert sound == FIRST
    assert "an older book is built upon" in warnings[0]


@pytest.mark.parametrize("content", ["", "{", '{"file": "x"}', "[]"])
def test_a_pointer_that_cannot_be_read_is_named(store: BookStore, content: str) -> None:
    commit(store, FIRST)
    (store.folder / "latest.json").write_text(content)
    with pytest.raises(InvalidInputError, match="--book embedded"):
        store.latest()
    assert store.newest_sound()[0] == FIRST


def test_a_full_disk_leaves_the_older_book(store: BookStore, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(store, FIRST)
    monkeypatch.setattr(os, "fsync", _no_space)
    with pytest.raises(OSError, match="No space"):
        commit(store, SECOND)
    monkeypatch.undo()
    assert latest(store) == FIRST
    assert list(store.folder.glob(".*.part")) == []


def _no_space(handle: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _killed_at(folder: str, step: int) -> None:
    """Commits SECOND and dies, as by kill -9, at the n-th replacing of a file (0: before any)."""
    real = Path.replace
    count = 0

    def replace_or_die(self: Path, target: Any) -> Path:
        nonlocal count
        if count == step:
            os._exit(9)
        count += 1
        return real(self, target)

    Path.replace = replace_or_die  # type: ignore[method-assign,assignment]
    store = BookStore(Path(folder))
    with store.lock():
        store.commit(SECOND)
    os._exit(0)


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_killed_at_any_step_it_is_the_old_book_or_the_new(store: BookStore, step: int) -> None:
    commit(store, FIRST)
    process = multiprocessing.get_context("fork").Process(target=_killed_at, args=(str(store.folder), step))
    process.start()
    process.join(30)
    assert process.exitcode == (0 if step == 3 else 9)
    assert latest(store) == (SECOND if step == 3 else FIRST)
    commit(store, SECOND)  # the lock of the dead is free
    assert latest(store) == SECOND
    assert list(store.folder.glob(".*.part")) == []


def test_only_so_many_books_are_kept(store: BookStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookstore, "BOOK_LIMIT", 3)
    for day in range(5):
        commit(store, replace(FIRST, as_of=FIRST.as_of + timedelta(days=day)))
    assert len(store.all()) == 3
    assert len(list(store.folder.glob("*.parquet"))) == 3
    assert latest(store).as_of == FIRST.as_of + timedelta(days=4)


def test_the_pointer_is_plain_json(store: BookStore) -> None:
    digest = commit(store, FIRST)
    pointer = json.loads((store.folder / "latest.json").read_text())
    assert (pointer["digest"], pointer["offers"]) == (digest, 1)
