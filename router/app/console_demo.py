"""Make the home of ``stepfare serve --demo``: two nights' plans, quotes, a month with its bills, and a gang that runs.

All of it is made up; ``router/demo/console`` holds it, and ``tests/support/demo_console.py`` wrote it.
"""

from __future__ import annotations

import gzip
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from pricing.atomic_file import make_private_folder
from router.app.settings import SettingsFiles, open_state, read_settings, restore_state
from router.ledger.budget import Scope
from router.planning.plan_json import plan_content, plan_from_json, plan_to_json
from router.planning.plan_names import NIGHT
from router.showback.bill_import import import_bills
from router.showback.bill_store import BillStore

#: The moment at which plans and quotes are looked at: the plan of that night can still be approved.
NIGHT_AT = datetime(2026, 11, 21, 18, 30, tzinfo=UTC)
#: The moment at which jobs and books are looked at: the bills of November are there.
BOOKS_AT = datetime(2026, 12, 3, 9, tzinfo=UTC)
#: Budgets of November, as in examples/showback.
BUDGETS = ((Scope.TEAM, "research", "12000"), (Scope.TEAM, "speech", "4000"), (Scope.ALL, "", "30000"))
#: Who looks at the demo, and may approve there.
DEMO_USER = "demo"
_BILLS = ("bill-aws.csv", "bill-gcp.csv", "bill-azure.csv")
_BILLS_AT = datetime(2026, 12, 3, 8, tzinfo=UTC)
_PLANS = ("plan-before.json.gz", "plan.json.gz")
_RULES = f"""\
# Who may approve plans in the demo.
approvers:
- {{name: {DEMO_USER}}}
- {{name: ana}}
max_age: 24h
"""


def write_demo_home(home: Path) -> None:
    """Write the demo into a folder that does not exist or is empty. OSError."""
    make_private_folder(home)
    rules = home / "approval.yaml"
    rules.write_text(_RULES, encoding="utf-8")
    (home / "deploy.yaml").write_text(f"approval_rules: {rules.resolve()}\n", encoding="utf-8")
    data = files("router.demo").joinpath("console")
    backup = home / "state.backup"
    backup.write_bytes(data.joinpath("state.backup").read_bytes())
    settings = replace(read_settings(SettingsFiles(home / "deploy.yaml"), {}), folder=home)
    restore_state(settings, backup, BOOKS_AT, BOOKS_AT, f"{DEMO_USER}@demo")
    backup.unlink()
    with open_state(settings, BOOKS_AT) as store:
        for name in _PLANS:
            text = gzip.decompress(data.joinpath(name).read_bytes()).decode()
            plan = replace(plan_from_json(text, name), name=NIGHT)
            digest = plan_content(plan)["digest"]
            store.made_plans.put(digest, plan_to_json(plan), plan.as_of, plan.as_of, f"nightly@{DEMO_USER}", plan.name)
    quotes = home / "quotes"
    quotes.mkdir(exist_ok=True)
    for quote in data.joinpath("quotes").iterdir():
        (quotes / quote.name).write_bytes(quote.read_bytes())
    bills = [home / name for name in _BILLS]
    for bill in bills:
        bill.write_bytes(data.joinpath(bill.name).read_bytes())
    import_bills(bills, BillStore(home / "bills"), _BILLS_AT)
