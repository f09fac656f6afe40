"""YAML with positions: scalars by YAML 1.2, what is refused, and where it stands."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pricing.problems import InvalidInputError, Problem
from router.config.yamlfile import MAX_NODES, parse_documents, read_documents
from tests.support.busy import on_a_busy_machine


def plain(text: str) -> Any:
    (document,) = parse_documents(text, "a.yaml")
    return document.plain()


def refused(text: str) -> list[Problem]:
    with pytest.raises(InvalidInputError) as caught:
        parse_documents(text, "a.yaml")
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("NO", "NO"),
        ("yes", "yes"),
        ("off", "off"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("7e9", 7e9),
        ("1_000", "1_000"),
        ("12", 12),
        ("-3", -3),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        (".5", 0.5),
        ("1.", 1.0),
        ("1:30", "1:30"),
        ("2026-11-25", "2026-11-25"),
        ("2026-11-25T09:00:00Z", "2026-11-25T09:00:00Z"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("!!str 12", "12"),
        ("+18h", "+18h"),
        ("H100:8", "H100:8"),
    ],
)
def test_scalars_mean_what_yaml_1_2_says(written: str, value: object) -> None:
    found = plain(f"field: {written}")["field"]
    assert (found, type(found)) == (value, type(value))


def test_keys_stay_text() -> None:
    assert plain("{8: a, no: b, null: c}") == {"8": "a", "no": "b", "null": "c"}


def test_every_value_knows_its_place() -> None:
    text = "name: a\ngang:\n  accelerators:\n    H100: [4, 8]\nlist:\n- x: 1\n- y: 2\n"
    (document,) = parse_documents(text, "dir/a.yaml")
    assert document.where() == "dir/a.yaml:1:1"
    assert document.where(("gang", "accelerators", "H100", 1)) == "dir/a.yaml:4:15"
    assert document.where(("list", 1, "y")) == "dir/a.yaml:7:6"
    assert document.where(("list", 1, "y"), key=True) == "dir/a.yaml:7:3"
    # What is not written there is shown at the deepest part that is.
    assert document.where(("gang", "options", 0)) == "dir/a.yaml:3:3"
    assert document.where(("list", 7)) == "dir/a.yaml:6:1"


def test_a_file_holds_several_documents_and_empty_ones_do_not_count() -> None:
    documents = parse_documents("---\na: 1\n---\n# nothing\n---\nb: 2\n...\n", "a.yaml")
    assert [d.plain() for d in documents] == [{"a": 1}, {"b": 2}]
    assert documents[1].where() == "a.yaml:6:1"
    assert parse_documents("# only a remark\n", "a.yaml") == ()


def test_aliases_and_merge_keys_are_understood() -> None:
    text = "base: &b {x: 1, y: 2}\nsame: *b\nmore: {<<: *b, y: 3}\ntwo: {<<: [*b, {x: 9, z: 4}]}\n"
    found = plain(text)
    assert found["same"] == {"x": 1, "y": 2}
    assert found["more"] == {"x": 1, "y": 3}
    assert found["two"] == {"x": 1, "y": 2, "z": 4}


def test_an_anchor_ends_with_its_document() -> None:
    assert "x" in str(refused("a: &x 1\n---\nb: *x\n")[0])


def test_a_key_written_twice_is_refused_with_both_lines() -> None:
    (problem,) = refused("steps: 1\nname: a\nsteps: 2\n")
    assert problem.where == "a.yaml:3:1"
    assert problem.what == "'steps' is written twice, first in line 1"


@pytest.mark.parametrize(
    ("text", "where", "word"),
    [
        ("a: 1\n\tb: 2\n", "a.yaml:2:1", "tab"),
        ("a: b: c\n", "a.yaml:1:5", "quote"),
        ("a: [1, 2\nb: 3\n", "a.yaml:2:2", "bracket"),
        ("a:\n  - 1\n b: 2\n", "a.yaml:3:2", "indentation"),
        ("a: @x\n", "a.yaml:1:4", "quote"),
        ("a: 'never closed\n", "a.yaml:2:1", ""),
    ],
)
def test_syntax_errors_have_a_place_and_mostly_a_remedy(text: str, where: str, word: str) -> None:
    (problem,) = refused(text)
    assert problem.where == where
    assert problem.what.startswith("is not YAML: ")
    assert word in problem.remedy


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system [echo]",
        "a: !!timestamp 2026-01-01",
        "a: !mine {b: 1}",
        "a: *nowhere",
        "a: &loop [*loop]",
        "? [a, b]\n: 1",
        "<<: 3",
        "a: .inf",
        "a: .nan",
        "a: 1e999",
        "a: " + "9" * 5000,
        "a: \x07",
        "[" * 5000,
        "a: " + "[" * 60 + "]" * 60,
        "- " * 3000 + "x",
    ],
)
def test_what_is_no_plain_data_is_refused_with_its_line(text: str) -> None:
    assert all(problem.where.startswith("a.yaml:1:") for problem in refused(text))


def test_several_problems_of_one_file_come_together() -> None:
    assert [p.where for p in refused("a: .nan\nb: !x 1\na: 2\n")] == ["a.yaml:1:4", "a.yaml:2:4", "a.yaml:3:1"]


def test_a_bomb_is_refused_unexploded() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    began = time.perf_counter()
    (problem,) = refused("\n".join(levels))
    assert time.perf_counter() - began < on_a_busy_machine(1)
    assert problem.where == "a.yaml:5:5"
    assert f"{MAX_NODES:,}" in problem.what


def test_a_bomb_in_many_documents_or_in_long_texts_is_a_bomb(tmp_path: Path) -> None:
    many = "---\n".join(["a: &a [" + "x, " * 99 + "x]\nb: [" + "*a, " * 99 + "*a]\n"] * 12)
    assert "aliases expanded" in refused(many)[0].what
    long = f"a: &a {'x' * 1_000_000}\nb: [" + "*a, " * 20 + "*a]\n"
    assert "aliases expanded" in refused(long)[0].what


def test_ten_megabytes_are_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "big.yaml"
    file.write_bytes(b"- x\n" * 2_600_000)
    began = time.perf_counter()
    with pytest.raises(InvalidInputError, match="larger than 2 MB"):
        read_documents(file)
    assert time.perf_counter() - began < on_a_busy_machine(1)


def test_many_values_in_a_small_file_are_refused() -> None:
    (problem,) = refused("[" + "1," * (MAX_NODES + 1) + "]")
    assert "over 100,000 values" in problem.what


def test_a_file_that_is_no_text_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "latin.yaml"
    file.write_bytes("a: 1\nb: caf\xe9\n".encode("latin-1"))
    with pytest.raises(InvalidInputError) as caught:
        read_documents(file)
    assert caught.value.problems[0].where == f"{file}:2:7"


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "bom.yaml"
    file.write_bytes(b"\xef\xbb\xbfname: a\r\nteam: b\r\n")
    assert read_documents(file)[0].plain() == {"name": "a", "team": "b"}


def test_no_file_and_no_permission_are_problems_not_tracebacks(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(InvalidInputError) as caught:
            read_documents(path)
        assert caught.value.problems[0].where == str(path)
