"""A retired word is read with a warning that names the new one and its end, and not for ever."""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib.metadata import version
from typing import Any

import pytest
from pydantic import ValidationError, model_validator

from pricing.retired_words import (
    RETIRED_WORDS,
    RetiredWord,
    RetiredWordWarning,
    choose_option,
    replace_retired_words,
)
from router.jobs.fields import Spec
from tests.support.repository import ROOT

FILE = "the deploy file"
SIZE = RetiredWord("size", "machines", FILE, "0.3.0")
OPTION = RetiredWord("--size", "--machines", "stepfare plan", "0.3.0")
SAYS = "`size` of the deploy file is now `machines`: write that; 0.3.0 no longer reads the old word"


def test_the_old_word_is_read_as_the_new_one() -> None:
    with pytest.warns(RetiredWordWarning) as caught:
        assert replace_retired_words({"size": 3, "other": 1}, FILE, [SIZE]) == {"machines": 3, "other": 1}
    assert [str(one.message) for one in caught] == [SAYS]


def test_without_an_old_word_nothing_is_said() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = {"machines": 3}
        assert replace_retired_words(given, FILE, [SIZE]) == given
        assert replace_retired_words({"size": 3}, "another file", [SIZE]) == {"size": 3}
        assert replace_retired_words({"size": 3}, FILE) == {"size": 3}
        assert replace_retired_words([1], FILE, [SIZE]) == [1]
        assert choose_option(3, None, OPTION) == 3
        assert choose_option(None, None, OPTION) is None


def test_both_words_are_refused() -> None:
    with pytest.raises(ValueError, match="machines and size are both given: keep machines"):
        replace_retired_words({"size": 3, "machines": 3}, FILE, [SIZE])
    with pytest.raises(ValueError, match="--machines and --size are both given: keep --machines"):
        choose_option(3, 3, OPTION)


class Section(Spec):
    """A part of a file, one of whose fields had another name."""

    machines: int = 1

    @model_validator(mode="before")
    @classmethod
    def _check_words(cls, value: Any) -> Any:
        return replace_retired_words(value, FILE, [SIZE])


def test_a_field_of_a_file_is_read_by_its_old_word() -> None:
    with pytest.warns(RetiredWordWarning, match="`size` of the deploy file"):
        assert Section.model_validate({"size": 3}) == Section(machines=3)
    with pytest.raises(ValidationError, match="machines and size are both given"):
        Section.model_validate({"size": 3, "machines": 3})


def test_an_old_option_is_read() -> None:
    with pytest.warns(RetiredWordWarning, match="`--size` of stepfare plan is now `--machines`"):
        assert choose_option(None, 3, OPTION) == 3


def test_a_command_says_each_once_on_stderr() -> None:
    script = """
from pricing.retired_words import RetiredWord, print_each_once, replace_retired_words
print_each_once()
words = [RetiredWord("size", "machines", "the deploy file", "0.3.0"), RetiredWord("b", "c", "the job file", "0.4.0")]
for number in range(3):
    for retired in words:
        replace_retired_words({retired.old: number}, retired.where, words)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"warning: {SAYS}",
        "warning: `b` of the job file is now `c`: write that; 0.4.0 no longer reads the old word",
    ]


def test_no_word_is_read_longer_than_it_says() -> None:
    def parts(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.split("."))

    assert [str(word) for word in RETIRED_WORDS if parts(word.ends) <= parts(version("stepfare"))] == []
