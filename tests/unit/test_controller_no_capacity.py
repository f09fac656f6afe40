"""A place whose machines cannot even be asked for is passed over."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pricing.places import Market
from router.controller.history.attempt_history import history_of
from router.controller.plans import Order
from router.controller.provision import provision_order
from router.controller.provision.provision_order import ProvisionResult, ProvisionStatus, record_attempts
from router.controller.supervise.replanner import PendingGang, PlacementAccepted
from router.controller.supervise.supervisor import Supervisor
from router.state.records import Phase
from tests.support.bare_site import bare_site
from tests.support.state_values import NOW, attempt, node


def test_where_no_zone_is_known_nobody_is_sent_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = attempt("a1")
    order = Order(one.job, one.gang, one.start, one.end, ())

    def nowhere(*_: object) -> ProvisionResult:
        return ProvisionResult(order, ProvisionStatus.FAILED, None, "no zone is known")

    monkeypatch.setattr(provision_order, "_new_attempt", nowhere)
    seat = type("ASeat", (), {"zone": None, "instance_type": "a3-highgpu-1g", "market": Market.SPOT})()
    choice: Any = type("AChoice", (), {"cloud": "gcp", "region": "europe-north1", "seats": (seat, seat)})()
    request: Any = SimpleNamespace(choices=(choice,))
    with bare_site(tmp_path, []) as site:
        site.store.attempts.add(one, [node("a1")])
        (answer,) = record_attempts(site, [(request, history_of(site.store, one))])
        assert isinstance(answer, ProvisionResult)
        (short,) = site.store.shortages.in_force(NOW)
        assert (short.region, short.zone, short.instance_type, short.machines) == (
            "europe-north1",
            None,
            "a3-highgpu-1g",
            2,
        )
        assert short.until - short.at == site.deploy.timeouts.shortage


def test_a_job_that_was_sent_there_asks_again(tmp_path: Path) -> None:
    one = attempt("a1", phase=Phase.FAILED, reason="lost", met_at=NOW, gone_at=NOW)
    told: list[str] = []
    with bare_site(tmp_path, told) as site:
        site.store.attempts.add(one, [node("a1")])
        order = Order(one.job, one.gang, one.start, one.end, ())
        nowhere = ProvisionResult(order, ProvisionStatus.FAILED, None, "no zone is known")
        replanner: Any = SimpleNamespace(placed=lambda going: [nowhere for _ in going])
        watcher = Supervisor(site, replanner, SimpleNamespace(), nullcontext)  # type: ignore[arg-type]
        go: Any = PlacementAccepted(SimpleNamespace(choices=(SimpleNamespace(),)))  # type: ignore[arg-type]
        watcher._carry_out([(PendingGang(history_of(site.store, one)), go)], 1.0)
        watcher.close()
        now = site.store.attempts.get("a1")
        assert now is not None
        assert now.reason == "lost"
        assert told == [f"{one.job}: waits for a place: no zone is known"]
