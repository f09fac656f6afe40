"""The page of a month in Chromium: no scrolling sideways, both schemes, axe, and nothing lost on paper."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from router.render.showback_page import page as month_page
from tests.support.browser import CHROMIUM, chromium, judge, measure
from tests.support.month_pages import full_month

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text(month_page(full_month()), encoding="utf-8")
    return file


@pytest.fixture
def opened(page: Path, tmp_path: Path) -> Path:
    """The page with its raw fields open; it lets a script of a test in."""
    text = page.read_text(encoding="utf-8").replace("<details>", "<details open>")
    file = tmp_path / "opened.html"
    file.write_text(re.sub(r"<meta http-equiv=[^>]*>", "", text), encoding="utf-8")
    return file


@pytest.mark.parametrize(("width", "drawing"), [(320, "n"), (390, "n"), (800, "t"), (1280, "w")])
def test_nothing_scrolls_sideways_and_one_drawing_of_each_picture_is_shown(
    page: Path, opened: Path, width: int, drawing: str
) -> None:
    for file in (page, opened):
        assert measure(file, width) == [str(width), str(width), drawing, "0"]


@pytest.mark.parametrize("scheme", ["0", "1"], ids=["dark", "light"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_has_nothing_against_it(opened: Path, width: int, scheme: str) -> None:
    kept, broken = judge(opened, width, scheme)
    assert broken == []
    assert kept > 30  # rules that found something to look at


@pytest.mark.parametrize("scheme", ["0", "1"], ids=["dark", "light"])
def test_it_renders_in_both_schemes(page: Path, tmp_path: Path, scheme: str) -> None:
    file = tmp_path / "page.png"
    chromium(
        f"--blink-settings=preferredColorScheme={scheme}",
        "--window-size=1280,900",
        f"--screenshot={file}",
        page.as_uri(),
    )
    image = file.read_bytes()
    assert struct.unpack(">II", image[16:24]) == (1280, 900)
    assert len(image) > 30_000  # an empty page is far smaller


def test_paper_has_few_pages(page: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.pdf"
    chromium("--no-pdf-header-footer", f"--print-to-pdf={file}", page.as_uri())
    assert 4 <= file.read_bytes().count(b"/Type /Page\n") <= 14
