"""Each page of the console in a real Chromium, over the demo's data: what people see, click and must never meet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import pytest

from tests.support.browser import CHROMIUM
from tests.support.console_browser import (
    DESKTOP,
    PHONE,
    Findings,
    axe_violations,
    chromium_browser,
    scrolls_sideways,
    serving,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
# Pages that differ only in what they are about; one of each kind is judged in all four looks.
_KINDS = (
    (r"^/plans/[^/?]+$", "a plan"),
    (r"^/plans/[^/?]+/diff", "changes of a plan"),
    (r"^/plans\?", "earlier plans"),
    (r"^/(tonight|plans/[^?]+)\?rows", "all rows of a plan"),
    (r"^/jobs/", "a job"),
    (r"^/attempts/", "an attempt"),
    (r"^/quotes/new", "a new quote"),
    (r"^/quotes/[^/?]+", "a quote"),
    (r"^/prices/history", "price history"),
    (r"^/prices\?", "prices of another accelerator"),
    (r"^/spend/\d{4}-\d\d/(\w+)/", r"a \1 of a month"),
    (r"^/spend/\d{4}-\d\d(\?|$)", "a month"),
    (r"^/spend\?", "a month by another grouping"),
    (r"^/waste", "waste"),
    (r"^/budgets", "budgets"),
    (r"^/audit", "the audit log"),
)
_LEAST_KINDS = 16
_MOST_PAGES = 150


@dataclass(frozen=True)
class Demo:
    """A console that shows the demo: its URL and its home."""

    url: str
    home: Path

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    home = tmp_path_factory.mktemp("demo") / "home"
    with serving("--demo", "--dir", str(home)) as url:
        yield Demo(url, home)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium_browser() as found:
        yield found


@pytest.fixture
def page(browser: Browser, demo: Demo) -> Iterator[Page]:
    findings = Findings(demo.host)
    with browser.new_context(viewport=PHONE, base_url=demo.url) as context:
        opened = context.new_page()
        findings.watch(opened)
        yield opened
        assert findings.errors == []
        assert findings.elsewhere == []


def kind_of(path: str) -> str:
    for pattern, kind in _KINDS:
        if found := re.search(pattern, path):
            return found.expand(kind)
    return path


@pytest.fixture(scope="module")
def crawled(browser: Browser, demo: Demo) -> dict[str, str]:
    """One path of each kind of page that links lead to from the front; no link leads nowhere."""
    waiting, seen, kinds = ["/"], {"/"}, dict[str, str]()
    with browser.new_context(base_url=demo.url) as context:
        while waiting:
            path = waiting.pop(0)
            answer = context.request.get(path, headers={"Accept": "text/html"})
            assert answer.status == 200, f"{path}: {answer.status}"
            if not answer.headers["content-type"].startswith("text/html"):
                continue
            kinds.setdefault(kind_of(path), path)
            for link in re.findall(r'<a [^>]*href="([^"]+)"', answer.text()):
                target = urlsplit(urljoin(path, link.replace("&amp;", "&")))
                assert target.netloc in ("", demo.host), f"{path} leads to {link}"
                found = target.path + (f"?{target.query}" if target.query else "")
                several = sum(kind_of(each) == kind_of(found) for each in seen)
                if found not in seen and several < 5 and len(seen) < _MOST_PAGES:
                    seen.add(found)
                    waiting.append(found)
    return kinds


def test_links_lead_to_every_kind_of_page(crawled: dict[str, str]) -> None:
    wanted = {kind for _, kind in _KINDS if "\\" not in kind} - {"earlier plans", "all rows of a plan"}
    assert wanted <= set(crawled), sorted(wanted - set(crawled))
    assert len(crawled) >= _LEAST_KINDS


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_every_page_can_be_read_by_everybody(
    browser: Browser, demo: Demo, crawled: dict[str, str], viewport: Any, scheme: Any
) -> None:
    findings, wrong = Findings(demo.host), list[str]()
    with browser.new_context(viewport=viewport, color_scheme=scheme, base_url=demo.url) as context:
        page = context.new_page()
        findings.watch(page)
        for kind, path in crawled.items():
            page.goto(path)
            if scrolls_sideways(page):
                wrong.append(f"{kind} {path} scrolls sideways")
            wrong += [f"{kind} {path}: {each}" for each in axe_violations(page)]
    assert wrong == []
    assert findings.errors == []
    assert findings.elsewhere == []
