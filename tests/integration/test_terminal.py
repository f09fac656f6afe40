"""What a terminal gets and a pipe does not: wider tables."""

from __future__ import annotations

from tests.support.command import run
from tests.support.terminal import run_in_terminal

OFFERS = ("offers", "--book", "embedded", "--now", "2026-11-21T18:00Z", "--limit", "40", "--cloud", "azure")


def test_tables_use_the_width_of_the_terminal() -> None:
    code, shown = run_in_terminal(*OFFERS, COLUMNS="160", NO_COLOR="1")
    piped = run(*OFFERS).stdout
    assert code == 0
    assert "…" in piped
    assert "…" not in shown
    assert max(map(len, piped.splitlines())) <= 80 < max(map(len, shown.splitlines())) <= 160
