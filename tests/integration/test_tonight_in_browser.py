"""Pages of a plan and an estimate in Chromium, where it is installed: no scrolling sideways, both schemes, paper."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from router.render.tonight_page import tonight_page
from tests.support.browser import CHROMIUM, chromium, measure
from tests.support.command import NOW, run
from tests.support.night import FOLDER, nightly_plan

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text(tonight_page(nightly_plan()), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def estimate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("estimate") / "page.html"
    job = FOLDER / "code-34b-pretrain.yaml"
    gangs = "H100:32,H200:32,A100-80GB:64,MI300X:32,L40S:8"
    run("estimate", job, "--on", gangs, "--layout", "auto", "--book", "embedded", "--now", NOW, "--html", file)
    return file


@pytest.mark.parametrize("name", ["page", "estimate"])
@pytest.mark.parametrize(("width", "drawing"), [(320, "n"), (390, "n"), (800, "t"), (1280, "w")])
def test_nothing_scrolls_sideways_and_one_drawing_is_shown(
    request: pytest.FixtureRequest, name: str, width: int, drawing: str
) -> None:
    page: Path = request.getfixturevalue(name)
    assert measure(page, width) == [str(width), str(width), drawing, "0"]


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


def test_paper_has_few_pages(page: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.pdf"
    chromium("--no-pdf-header-footer", f"--print-to-pdf={file}", page.as_uri())
    assert 3 <= file.read_bytes().count(b"/Type /Page\n") <= 8
