"""A real console process, and a real Chromium that Playwright drives; it notes what a reader must never see."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.support.listening import listening_port
from tests.support.repository import ran

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@contextmanager
def chromium_browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


def run_axe(page: Page, **options: Any) -> dict[str, Any]:
    """Return what axe finds on the page as it is now. The options are axe's own.

    Every rule that the page keeps is among the passes with one element at most: to describe all takes longest.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(_axe_script())
    found: dict[str, Any] = page.evaluate(
        "(options) => axe.run(document, options)", {"resultTypes": ["violations"], **options}
    )
    return found


@cache
def _axe_script() -> str:
    """Return the rules of axe as one script; they come with the extra `slow`."""
    spec = find_spec("axe_playwright_python")
    assert spec is not None, "pip install 'stepfare[slow]'"
    assert spec.submodule_search_locations
    return (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")


if TYPE_CHECKING:
    from playwright.sync_api import Page

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
_STEPFARE = str(Path(sys.executable).with_name("stepfare"))
# WCAG 2.0 to 2.2, A and AA, and what axe calls best practice.
_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@dataclass
class Findings:
    """Errors on the pages that a browser opened: messages of its console, requests to other hosts."""

    host: str
    errors: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        """Note what this page does from now on."""
        page.on("console", lambda message: self.errors.extend([message.text] if message.type == "error" else []))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self._note_request(request.url))

    def _note_request(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "about", "blob") and parts.netloc != self.host:
            self.elsewhere.append(url)


@contextmanager
def serving(*options: str, environment: dict[str, str] | None = None) -> Iterator[str]:
    """Run `stepfare serve` in a process of its own and return its URL, without a slash at its end."""
    words = [_STEPFARE, "serve", "--port", "0", *options]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield f"http://127.0.0.1:{listening_port(process)}"
        finally:
            process.terminate()


def axe_violations(page: Page) -> list[str]:
    """Return what axe has against the page as it is now, with everything that can be opened open."""
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    found = run_axe(page, runOnly=_TAGS)
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found["violations"]]


def scrolls_sideways(page: Page) -> bool:
    """Return whether the page is wider than its window."""
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def amounts(page: Page, selector: str) -> list[str]:
    """Return the exact amounts in an element: the values of its `data` elements."""
    return [str(value) for value in page.eval_on_selector_all(f"{selector} data", "all => all.map((e) => e.value)")]


def command_json(home: Path, *words: object) -> Any:
    """Return what a command prints with -o json over the same home."""
    environment = {**os.environ, "STEPFARE_HOME": str(home)}
    done = ran([_STEPFARE, *map(str, words), "-o", "json"], env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def is_on_first_screen(page: Page, selector: str) -> bool:
    """Return whether the element is seen whole without scrolling."""
    box = page.locator(selector).first.bounding_box()
    height = page.viewport_size["height"]
    return box is not None and box["y"] >= 0 and box["y"] + box["height"] <= height
