"""Pages of a plan and an estimate in Chromium, where it is installed: no scrolling sideways, both schemes, paper."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from router.render.tonight_page import tonight_page
from tests.support.command import NOW, run
from tests.support.night import FOLDER, nightly_plan

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FRAME = """<!doctype html><body style="margin:0">
<iframe id="page" src="page.html" style="width:{width}px;height:900px"></iframe>
<script>
document.getElementById("page").onload = (event) => {{
  const page = event.target.contentDocument;
  const root = page.documentElement;
  const shown = [...page.querySelectorAll("figure > div")].filter((each) => each.offsetWidth > 0);
  const beyond = [...page.querySelectorAll("main *")].filter((each) =>
    !each.closest("svg, thead") && each.getBoundingClientRect().right > root.clientWidth + 1);
  const names = shown.map((each) => each.className);
  document.body.dataset.found = [root.scrollWidth, root.clientWidth, names, beyond.length];
}};
</script>"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]


def chromium(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Chromium without a window; it may read the other files of a page's folder."""
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files")
    return subprocess.run([CHROMIUM or "", *flags, *arguments], capture_output=True, text=True, check=True, timeout=120)


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
    """A frame of the width holds the page; the frame's own page asks how wide its content is."""
    page: Path = request.getfixturevalue(name)
    frame = page.with_name(f"frame-{width}.html")
    frame.write_text(FRAME.format(width=width), encoding="utf-8")
    dom = chromium("--virtual-time-budget=5000", "--dump-dom", frame.as_uri()).stdout
    found = dom.split('data-found="')[1].split('"')[0].split(",")
    assert found == [str(width), str(width), drawing, "0"]


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
