"""Time the console's page of a month over a ledger of a million entries: the first reading, then later requests.

    python -m tests.bench.spend_console [--rows 1000000] [--requests 200]

The entries are in the extract already; the newest thousand are read by the first page. Then the ledger grows by a
thousand, and the page is asked for while it is made again. One client asks in this process, without a network.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from fastapi.testclient import TestClient

from router.app.queries.context import QueryContext
from router.app.settings import AppSettings
from router.console.answers import AnswerCache
from router.console.app import make_console
from router.console.site import COST_SECONDS, ConsoleSite
from router.deploy.deploy_settings import Deploy
from router.prices.cloud_settings import Clouds, LoadedClouds
from router.state.ledger_rows import BEGINNING, chain_rows, entry_values
from router.state.store import StateStore
from tests.bench.showback import NOW, _begin_with, _entries, write_extract
from tests.support.console import OPERATOR

ROWS, NEW, ASKED = 1_000_000, 1_000, 200
PAGE = {"Accept": "text/html", "Accept-Encoding": "gzip"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the console's page of a month over a large ledger.")
    parser.add_argument("--rows", type=int, default=ROWS, help="entries in the ledger, 100,000 at least")
    parser.add_argument("--requests", type=int, default=ASKED, help="for the page that is kept, and while it is made")
    asked = parser.parse_args()
    print(f"SPEND IN THE CONSOLE ({asked.rows:,} entries; load {os.getloadavg()[0]:.1f})")
    with TemporaryDirectory(prefix="stepfare-bench-") as folder:
        os.environ["STEPFARE_HOME"] = folder
        for line in figures(Path(folder), asked.rows, asked.requests):
            print(line, flush=True)


def figures(home: Path, rows: int, requests: int) -> Iterator[str]:
    """A line each: pages for the first time, readers of what is kept, and while it is made again."""
    settings = AppSettings(Deploy(), LoadedClouds(Clouds(), {}), home, {})
    with StateStore.open(settings.state_url, now=NOW) as store, ExitStack() as ending:
        (last,) = chain_rows([entry_values(_entries(0)[0])], rows - NEW - 1, BEGINNING)
        manifest = write_extract(home / "extract", store.id, rows - NEW, str(last[-1]))
        _begin_with(store, last)
        store.ledger.append(_entries(manifest.head), after=manifest.head)
        site = ConsoleSite(QueryContext(settings, store, lambda: NOW, OPERATOR), lambda _: OPERATOR, AnswerCache())
        client = ending.enter_context(TestClient(make_console(site), base_url="http://127.0.0.1"))

        def seconds(url: str) -> float:
            began = time.perf_counter()
            answer = client.get(url, headers=PAGE)
            assert answer.status_code == 200, answer.text[:500]
            return time.perf_counter() - began

        yield f"  first page of the month        {seconds('/spend'):8.2f} s"
        yield f"  another grouping, first        {seconds('/spend?by=team,project'):8.2f} s"
        yield f"  a team of it, first            {seconds('/spend/2026-11/team/team-1'):8.2f} s"
        yield f"  waste, first                   {seconds('/waste'):8.2f} s"
        yield f"  JSON, first                    {seconds('/api/v1/showback'):8.2f} s"
        site.share_answers()
        yield f"  kept, {requests:3} readers in turn     {_told([seconds('/spend') for _ in range(requests)])}"
        store.ledger.append(_entries(manifest.head + NEW), after=manifest.head + NEW)
        time.sleep(COST_SECONDS[0])
        yield f"  while it is made again         {_told([seconds('/spend') for _ in range(requests)])}"
        size = len(client.get("/spend", headers=PAGE).content)
        yield f"  the page has                   {size / 1024:8.0f} KiB"


def _told(found: list[float]) -> str:
    ordered = sorted(found)
    return (
        f"{statistics.median(found) * 1000:8.1f} ms in the middle, 99 in 100 within "
        f"{ordered[int(len(ordered) * 0.99)] * 1000:.1f} ms, {ordered[-1] * 1000:.1f} ms at most"
    )


if __name__ == "__main__":
    main()
