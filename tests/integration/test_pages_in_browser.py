"""Each page in Chromium: no scrolling sideways, both schemes, axe, and a few sheets of paper."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from router.render.quote_page import quotes_page
from router.render.showback_page import page as month_page
from router.render.tonight_page import tonight_page
from tests.support.asked_quotes import a_quote, refused
from tests.support.browser import CHROMIUM, chromium, judge, measure
from tests.support.command import NOW, run
from tests.support.month_pages import full_month
from tests.support.night import FOLDER, nightly_plan
from tests.support.scenes import NORTH, NORTH_SPOT, SOUTH, a_job

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


def tonight() -> str:
    return tonight_page(nightly_plan())


def estimate(file: Path) -> str:
    job = FOLDER / "code-34b-pretrain.yaml"
    gangs = "H100:32,H200:32,A100-80GB:64,MI300X:32,L40S:8"
    run("estimate", job, "--on", gangs, "--layout", "auto", "--book", "embedded", "--now", NOW, "--html", file)
    return file.read_text(encoding="utf-8")


def one_quote() -> str:
    job = a_job("b-of-63-letters-" + "n" * 47, steps=2000)
    return quotes_page([("quote-1", a_quote(job, 40, [NORTH, NORTH_SPOT, SOUTH]))])


def several_quotes() -> str:
    job = a_job("b-of-63-letters-" + "n" * 47, steps=2000)
    curved = a_quote(job, 40, [NORTH, NORTH_SPOT, SOUTH])
    endless = a_quote(a_job("c", spot="only"), 24, [NORTH_SPOT])
    return quotes_page([("quote-1", curved), ("", endless)], [refused(a_job("rush"), 1, [NORTH])])


def month() -> str:
    return month_page(full_month())


PAGES: dict[str, Callable[[], str]] = {
    "tonight": tonight,
    "one quote": one_quote,
    "several quotes": several_quotes,
    "month": month,
}
SHEETS = {"tonight": (3, 8), "estimate": (2, 5), "one quote": (4, 13), "several quotes": (4, 13), "month": (3, 6)}


@pytest.fixture(scope="module", params=SHEETS)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file: Path = tmp_path_factory.mktemp("page") / f"{request.param.replace(' ', '-')}.html"
    text = estimate(file) if request.param == "estimate" else PAGES[request.param]()
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def opened(page: Path, tmp_path: Path) -> Path:
    """The page with its raw fields open; it lets a script of a test in."""
    text = page.read_text(encoding="utf-8").replace("<details>", "<details open>")
    file = tmp_path / "opened.html"
    file.write_text(re.sub(r"<meta http-equiv=[^>]*>", "", text), encoding="utf-8")
    return file


@pytest.mark.parametrize(("width", "drawing"), [(320, "n"), (390, "n"), (660, "t"), (800, "t"), (1280, "w")])
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
    assert kept > 25  # rules that found something to look at


@pytest.mark.parametrize("scheme", ["0", "1"], ids=["dark", "light"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_renders_in_both_schemes(page: Path, tmp_path: Path, width: int, scheme: str) -> None:
    file = tmp_path / "page.png"
    chromium(
        f"--blink-settings=preferredColorScheme={scheme}",
        f"--window-size={width},900",
        f"--screenshot={file}",
        page.as_uri(),
    )
    image = file.read_bytes()
    assert struct.unpack(">II", image[16:24]) == (width, 900)
    assert len(image) > 30_000  # an empty page is far smaller


def test_paper_has_few_sheets(page: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.pdf"
    chromium("--no-pdf-header-footer", f"--print-to-pdf={file}", page.as_uri())
    least, most = SHEETS[page.stem.replace("-", " ")]
    assert least <= file.read_bytes().count(b"/Type /Page\n") <= most
