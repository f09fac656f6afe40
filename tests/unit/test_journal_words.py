"""Entries of the journal in words: every word of them with and without its details."""

from __future__ import annotations

import pytest

from router.render import journal_words
from router.render.journal_words import describe_entry
from router.state.records import JournalEntry
from tests.support.state_values import NOW


def entry(what: str, **details: object) -> JournalEntry:
    return JournalEntry(1, NOW, "x", what, details)


@pytest.mark.parametrize("what", sorted(journal_words._WORDS))
def test_no_entry_prints_a_detail_that_it_does_not_have(what: str) -> None:
    assert "None" not in describe_entry(entry(what))
    words = journal_words._WORDS[what] + journal_words._MORE_WORDS.get(what, "")
    used = (*journal_words._DETAIL.findall(words), *journal_words._PASSED_OVER.get(what, ()))
    assert "None" not in describe_entry(entry(what, **dict.fromkeys(used)))


def test_a_checkpoint_says_its_step_where_it_is_known() -> None:
    assert describe_entry(entry("saved", rank=0, saved_step=1500)) == "rank 0 saved a checkpoint at step 1,500"
    assert describe_entry(entry("saved", rank=0)) == "rank 0 saved a checkpoint"
