"""Chromium, where it is installed, driven by Playwright: a browser for many pages, and what axe has against one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
