"""Make the home of ``stepfare serve --demo``: plans, what runs of them tonight, earlier runs, bills, quotes, prices.

All of it is made up; ``router/demo/console`` holds it, and ``tests/support/demo_console.py`` wrote it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from pricing.atomic_file import make_private_folder
from router.app.settings import SettingsFiles, read_settings
from router.app.state_restoration import restore_state
from router.showback.bill_import import import_bills
from router.showback.bill_store import BillStore

#: The moment at which everything is looked at: what tonight's plan ordered first is done or runs.
DEMO_AT = datetime(2026, 11, 21, 22, 40, tzinfo=UTC)
#: Who looks at the demo, and may approve there.
DEMO_USER = "demo"
APPROVAL_RULES = f"""\
# Who may approve plans in the demo.
approvers:
- {{name: {DEMO_USER}}}
- {{name: ana}}
no_approval_up_to: "$40000"
max_age: 24h
"""


def write_demo_home(home: Path) -> None:
    """Write the demo into a folder that does not exist or is empty. OSError."""
    make_private_folder(home)
    rules = home / "approval.yaml"
    rules.write_text(APPROVAL_RULES, encoding="utf-8")
    (home / "deploy.yaml").write_text(f"approval_rules: {rules.resolve()}\n", encoding="utf-8")
    data = files("router.demo").joinpath("console")
    _copy_folder(data, home)
    settings = replace(read_settings(SettingsFiles(home / "deploy.yaml"), {}), folder=home)
    backup = home / "state.backup"
    restore_state(settings, backup, DEMO_AT, DEMO_AT, f"{DEMO_USER}@demo")
    backup.unlink()
    import_bills(sorted(home.glob("bill-*.csv")), BillStore(home / "bills"), DEMO_AT)


def _copy_folder(source: Traversable, folder: Path) -> None:
    make_private_folder(folder)
    for each in source.iterdir():
        if each.is_dir():
            _copy_folder(each, folder / each.name)
        else:
            (folder / each.name).write_bytes(each.read_bytes())
