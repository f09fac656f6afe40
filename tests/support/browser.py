"""Pages in Chromium, where it is installed: how wide they are at a width, and what axe has against them."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FRAME = """<!doctype html><body style="margin:0">
<iframe id="page" src="{name}" style="width:{width}px;height:900px;border:0"></iframe>
<script>
const frame = document.getElementById("page");
frame.onload = () => {{
  const page = frame.contentDocument;
  {script}
}};
</script>"""
_MEASURE = """
  const root = page.documentElement;
  const shown = [...page.querySelectorAll("figure > div")].filter((each) => each.offsetWidth > 0);
  const beyond = [...page.querySelectorAll("main *")].filter((each) =>
    !each.closest("svg, thead") && each.getBoundingClientRect().right > root.clientWidth + 1);
  const names = [...new Set(shown.map((each) => each.className))].join(" ");
  document.body.dataset.found = [root.scrollWidth, root.clientWidth, names, beyond.length];"""
_AXE = """
  const rules = page.createElement("script");
  rules.src = "{axe}";
  rules.onload = async () => {{
    const found = await frame.contentWindow.axe.run(page);
    document.body.dataset.found = JSON.stringify([
      found.passes.length, found.violations.map((each) => each.id + ": " + each.nodes[0].html)]);
  }};
  page.head.appendChild(rules);"""


def chromium(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Chromium without a window; it may read the other files of a page's folder."""
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files")
    return subprocess.run([CHROMIUM or "", *flags, *arguments], capture_output=True, text=True, check=True, timeout=600)


def measure(page: Path, width: int) -> list[str]:
    """How wide the content and the frame are, which drawings are shown, how many elements reach beyond the frame."""
    return _in_frame(page, width, _MEASURE).split(",")


def judge(page: Path, width: int, scheme: str) -> tuple[int, list[str]]:
    """How many of axe's rules the page keeps, and those that it breaks; ``scheme`` is 0 for dark, 1 for light."""
    axe = axe_script().as_uri()
    kept, broken = json.loads(_in_frame(page, width, _AXE.format(axe=axe), scheme))
    return kept, broken


def axe_script() -> Path:
    """The rules of axe as one script; they come with the extra `slow`."""
    spec = find_spec("axe_playwright_python")
    assert spec is not None, "pip install 'stepfare[slow]'"
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "axe.min.js"


def _in_frame(page: Path, width: int, script: str, scheme: str = "1") -> str:
    """A frame of the width holds the page; the frame's own page runs the script, as the page itself has none."""
    frame = page.with_name(f"frame-{width}.html")
    frame.write_text(_FRAME.format(name=page.name, width=width, script=script), encoding="utf-8")
    dom = chromium(
        f"--blink-settings=preferredColorScheme={scheme}",
        "--virtual-time-budget=20000",
        "--window-size=1400,1000",
        "--dump-dom",
        frame.as_uri(),
    ).stdout
    found = re.search('data-found="(.*?)"', dom)
    assert found is not None, dom[-2000:]
    return html.unescape(found[1])
