"""Text and JSON data are kept in one form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.state.columns import canonical_json, storable_text

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")))
def test_text_stays_as_it_is(text: str) -> None:
    assert storable_text(text) == text


@given(st.text(st.characters()))
def test_any_text_can_be_kept(text: str) -> None:
    assert "\0" not in storable_text(text)
    assert storable_text(text).encode("utf-8").decode("utf-8") == storable_text(storable_text(text))


@pytest.mark.parametrize("bad", [None, 1, b"x"])
def test_only_text_is_text(bad: Any) -> None:
    with pytest.raises(TypeError):
        storable_text(bad)


@given(_JSON)
def test_json_data_come_back(data: object) -> None:
    text = canonical_json(data)
    assert text.isascii()
    assert json.loads(text) == data
    assert canonical_json(json.loads(text)) == text


def test_the_order_of_keys_does_not_matter() -> None:
    assert canonical_json({"b": 1, "a": {"d": 1, "c": 2}}) == canonical_json({"a": {"c": 2, "d": 1}, "b": 1})


@pytest.mark.parametrize("bad", [{1, 2}, b"x", object(), float("nan"), float("inf")])
def test_what_is_not_json_data(bad: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        canonical_json({"details": [bad]})
