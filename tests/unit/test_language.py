"""The code speaks the field's language: one name, one class, and no word that docs/glossary.md retired."""

from __future__ import annotations

from pathlib import Path

from tests.bench.code_figures import classes_named_twice, retired_words, vague_names, words_in
from tests.support.repository import ROOT

# Stored and public words stay: a field of quotes in JSON, and the name of a file in STEPFARE_HOME.
STORED = {
    "router/prices/data_folders.py": {"weather": 1},
    "router/quotes/quote.py": {"weather": 2},
    "router/quotes/request.py": {"weather": 1},
    "router/render/quote_text.py": {"weather": 1},
}


def test_no_class_of_router_has_the_name_of_another() -> None:
    assert classes_named_twice(ROOT) == {}


def test_what_leaves_a_function_is_named_for_what_it_is() -> None:
    assert not vague_names(ROOT)


def test_retired_words_are_gone() -> None:
    assert {str(path): dict(words) for path, words in retired_words(ROOT).items()} == STORED


def test_a_retired_word_is_found_in_names_and_prose(tmp_path: Path) -> None:
    code = tmp_path / "code.py"
    code.write_text('class WeatherMap:\n    """Errands of SkyPilot and the sky."""\n\n\nwhats_left = 1\n')
    assert words_in(code) == {"weather": 1, "errand": 1, "sky": 1, "whats left": 1}
