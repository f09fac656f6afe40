"""Each page in Chromium: no scrolling sideways, both schemes, axe, and a few sheets of paper."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from router.render.quote_page import quotes_page
from router.render.showback_page import page as month_page
from router.render.tonight_page import tonight_page
from tests.support.asked_quotes import a_quote, refused
from tests.support.command import NOW, run
from tests.support.console_browser import CHROMIUM, chromium_browser, run_axe
from tests.support.month_pages import full_month
from tests.support.night import FOLDER, nightly_plan
from tests.support.scenes import NORTH, NORTH_SPOT, SOUTH, a_job

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium_browser() as browser:
        yield browser


@contextmanager
def shown(browser: Browser, page: Path, width: int, scheme: Literal["dark", "light"] = "light") -> Iterator[Page]:
    """Open the page in a window of its own."""
    window = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    try:
        window.goto(page.as_uri())
        yield window
    finally:
        window.close()


def open_raw_fields(window: Page) -> None:
    window.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")


# How wide the content and the window are, which drawings are shown, how many elements reach beyond the window.
MEASURE = """() => {
  const root = document.documentElement;
  const shown = [...document.querySelectorAll("figure > div")].filter((each) => each.offsetWidth > 0);
  const beyond = [...document.querySelectorAll("main *")].filter((each) =>
    !each.closest("svg, thead") && each.getBoundingClientRect().right > root.clientWidth + 1);
  const names = [...new Set(shown.map((each) => each.className))].join(" ");
  return [root.scrollWidth, root.clientWidth, names, beyond.length];
}"""


@pytest.mark.parametrize(("width", "drawing"), [(320, "n"), (390, "n"), (660, "t"), (800, "t"), (1280, "w")])
def test_nothing_scrolls_sideways_and_one_drawing_of_each_picture_is_shown(
    browser: Browser, page: Path, width: int, drawing: str
) -> None:
    with shown(browser, page, width) as window:
        assert window.evaluate(MEASURE) == [width, width, drawing, 0]
        open_raw_fields(window)
        assert window.evaluate(MEASURE) == [width, width, drawing, 0]


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_has_nothing_against_it(browser: Browser, page: Path, width: int, scheme: Literal["dark", "light"]) -> None:
    with shown(browser, page, width, scheme) as window:
        open_raw_fields(window)
        found = run_axe(window)
    assert [f"{each['id']}: {each['nodes'][0]['html']}" for each in found["violations"]] == []
    assert len(found["passes"]) > 25  # rules that found something to look at


@pytest.mark.parametrize("scheme", ["dark", "light"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_renders_in_both_schemes(browser: Browser, page: Path, width: int, scheme: Literal["dark", "light"]) -> None:
    with shown(browser, page, width, scheme) as window:
        image = window.screenshot()
    assert struct.unpack(">II", image[16:24]) == (width, 900)
    assert len(image) > 30_000  # an empty page is far smaller


def test_paper_has_few_sheets(browser: Browser, page: Path) -> None:
    edge = "1cm"
    with shown(browser, page, 1280) as window:
        paper = window.pdf(margin={"top": edge, "right": edge, "bottom": edge, "left": edge})
    least, most = SHEETS[page.stem.replace("-", " ")]
    assert least <= paper.count(b"/Type /Page\n") <= most
