"""The page of quotes in Chromium: no scrolling sideways, both schemes, axe, paper; for one quote and for several."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from router.render.quote_page import quotes_page
from tests.support.asked_quotes import a_quote, refused
from tests.support.browser import CHROMIUM, chromium, judge, measure
from tests.support.scenes import NORTH, NORTH_SPOT, SOUTH, a_job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


@pytest.fixture(scope="module", params=["one", "several"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    curved = a_quote(a_job("b-of-63-letters-" + "n" * 47, steps=2000), 40, [NORTH, NORTH_SPOT, SOUTH])
    text = quotes_page([("quote-1", curved)])
    if request.param == "several":
        endless = a_quote(a_job("c", spot="only"), 24, [NORTH_SPOT])
        text = quotes_page([("quote-1", curved), ("", endless)], [refused(a_job("rush"), 1, [NORTH])])
    file = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(("width", "drawing"), [(320, "n"), (390, "n"), (800, "t"), (1280, "w")])
def test_nothing_scrolls_sideways_and_one_drawing_of_each_picture_is_shown(
    page: Path, width: int, drawing: str
) -> None:
    assert measure(page, width) == [str(width), str(width), drawing, "0"]


@pytest.mark.parametrize("scheme", ["0", "1"], ids=["dark", "light"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_has_nothing_against_it(page: Path, width: int, scheme: str) -> None:
    kept, broken = judge(page, width, scheme)
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
    assert 4 <= file.read_bytes().count(b"/Type /Page\n") <= 13
