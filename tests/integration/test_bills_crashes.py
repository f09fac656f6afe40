"""An import that is killed before any of its steps, or that finds the disk full, leaves the bills as they were; the
next one leaves what it should, and nothing else. Two at once: both are whole."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from router.showback.bill_import import import_bills
from router.showback.bill_store import BillStore
from router.showback.focus.charge_files import write_csv
from tests.support.golden_charges import golden_charges
from tests.support.repository import ROOT, ran

pytestmark = pytest.mark.slow

# Dies before the nth call of what changes a disk; says so when there were not so many.
IMPORT = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
import shutil
from router.showback.bill_store import BillStore
from router.showback.bill_import import import_bills

die_at, store, *files = sys.argv[1:]
left = int(die_at)

def counted(function):
    def call(*arguments, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return call

for owner, name in ((Path, "replace"), (Path, "mkdir"), (Path, "open"), (os, "fsync"), (shutil, "rmtree"), (Path,
"unlink")):
    setattr(owner, name, counted(getattr(owner, name)))
import_bills([Path(file) for file in files], BillStore(Path(store)), datetime(2026, 11, 22, tzinfo=UTC))
print("done")
"""
BEFORE, AFTER = Decimal("1162.8"), Decimal("1082.8")
MOST_STEPS = 60


def command(folder: Path, die_at: int, file: str) -> list[str]:
    return [sys.executable, "-c", IMPORT, str(die_at), str(folder / "bills"), str(folder / file)]


def made(folder: Path) -> BillStore:
    """A store with November, and a restated November beside it that has not been imported: an hour of the spot job
    less."""
    write_csv(folder / "first.csv", golden_charges(), "1.2")
    write_csv(folder / "restated.csv", golden_charges()[5:] + golden_charges()[:1], "1.2")
    store = BillStore(folder / "bills")
    import_bills([folder / "first.csv"], store, datetime(2026, 11, 21, tzinfo=UTC))
    return store


def billed(store: BillStore) -> Decimal:
    """Dollars that stand, as a reader of the files adds them up."""
    tables = [pq.read_table(path, columns=["BillingCurrency", "BilledCost"]) for path in store.current()]
    found = [pc.sum(table.filter(pc.equal(table["BillingCurrency"], "USD"))["BilledCost"]).as_py() for table in tables]
    return sum((each for each in found if each is not None), Decimal(0))


def files(store: BillStore) -> set[str]:
    return {str(path.relative_to(store.folder)) for path in store.folder.rglob("*") if path.is_file()}


def test_killed_before_any_step(tmp_path: Path) -> None:
    states = []
    for step in range(1, MOST_STEPS, 2):
        folder = tmp_path / str(step)
        folder.mkdir()
        store = made(folder)
        done = ran(command(folder, step, "restated.csv"), cwd=ROOT)
        found = billed(store)
        assert found in (BEFORE, AFTER)
        states.append(found)
        import_bills([folder / "restated.csv"], store, datetime(2026, 11, 23, tzinfo=UTC))
        assert billed(store) == AFTER
        assert all(store.whole(each) for each in store.bills())
        # The lock; a manifest and three bills; a manifest and the bill that is another one now.
        assert len(files(store)) == 1 + (1 + 3) + (1 + 1)
        if done.returncode == 0:
            assert done.stdout == "done\n"
            break
        assert done.returncode == -9, done.stderr
    assert states[-1] != states[0]
    assert states == sorted(states, reverse=True)
    assert len(states) > 8


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    store = made(tmp_path)
    before = files(store)
    for room in (0, 20_000):
        done = ran(
            command(tmp_path, 0, "restated.csv"),
            cwd=ROOT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            preexec_fn=lambda room=room: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        )
        assert done.returncode != 0
        assert "File too large" in done.stderr
        assert (billed(store), files(store)) == (BEFORE, before)


def test_two_at_once_are_both_whole(tmp_path: Path) -> None:
    store = made(tmp_path)
    write_csv(tmp_path / "other.csv", golden_charges()[1:], "1.2")
    running = [
        subprocess.Popen(command(tmp_path, 0, name), cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for name in ("restated.csv", "other.csv", "restated.csv")
    ]
    assert [process.communicate(timeout=120)[0] for process in running] == ["done\n"] * 3
    # Where the other one came between the two, the restated bill stands again by a delivery of its own.
    assert [each.number for each in store.deliveries()] in ([1, 2, 3], [1, 2, 3, 4])
    assert all(store.whole(each) for each in store.bills())
    assert len(store.standing()) == 3
