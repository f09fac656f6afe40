"""What each metadata service announces, read as its documentation has it, and what it may answer instead."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from router.agent import imds, imds_aws, imds_azure, imds_files, imds_gcp
from router.agent.imds import MachineNotice, MetadataClient, NoticeSourceError, NoticeWatch, parse_timestamp
from terraform.workdir import MODULES
from tests.support.busy import in_time
from tests.support.metadata_service import REBALANCE, SPOT, Machine, MetadataService

TOKEN_CALL, SPOT_CALL = "PUT /latest/api/token", f"GET /latest/meta-data/{SPOT}"
SCHEDULED_CALL = "GET /latest/meta-data/events/maintenance/scheduled"
NOWHERE = Path("nowhere")


class _Clock:
    """A clock of one's own in place of the module ``time``."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def service() -> Iterator[MetadataService]:
    with MetadataService().running() as running:
        yield running


@pytest.fixture
def machine(service: MetadataService) -> Machine:
    return service.machine


def _looked(watch: NoticeWatch) -> list[MachineNotice]:
    found: list[MachineNotice] = []
    watch.look(found.append)
    return found


def _fields(notice: MachineNotice) -> tuple[str, str, str]:
    return notice.id, notice.kind, notice.source


def test_moments_in_the_forms_that_services_write() -> None:
    assert parse_timestamp("2026-11-21T18:00:00Z") == parse_timestamp("Sat, 21 Nov 2026 18:00:00 GMT") == 1795284000.0
    assert parse_timestamp("21 Nov 2026 18:00:00 GMT") == parse_timestamp("2026-11-21T18:00:00.123Z") == 1795284000.0
    for wrong in (None, 5, "", "soon", "2026-13-41T99:00:00Z", "2026-11-21", "Sat, 99 Nov 99999999 18:00:00 GMT"):
        assert parse_timestamp(wrong) is None


# EC2


@pytest.fixture
def instance(service: MetadataService) -> NoticeWatch:
    (watch,) = imds_aws.watches("aws", service.url, None, NOWHERE)
    return watch


@pytest.mark.parametrize("key", ["action", "instance-action"])
def test_ec2_an_interruption(instance: NoticeWatch, machine: Machine, key: str) -> None:
    assert _looked(instance) == []
    machine.interrupt(120.0, key=key)
    (notice,) = _looked(instance)
    assert (notice.kind, notice.source) == ("interruption", "aws")
    assert notice.id.startswith("terminate-20")
    assert notice.seconds is not None
    assert 116.9 <= notice.seconds <= 120.0
    assert _looked(instance)[0].id == notice.id


def test_ec2_what_is_left_is_by_the_clock_of_the_service(instance: NoticeWatch, machine: Machine) -> None:
    for ahead in (timedelta(hours=-5), timedelta(days=40)):
        machine.ahead = ahead
        machine.interrupt(100.0)
        (notice,) = _looked(instance)
        assert notice.seconds is not None
        assert 96.9 <= notice.seconds <= 100.0
    machine.dated = False
    assert _looked(instance)[0].seconds is None
    machine.dated = True
    machine.interrupt(-50.0)
    assert _looked(instance)[0].seconds == 0.0


def test_ec2_a_rebalance_recommendation_and_a_scheduled_event(instance: NoticeWatch, machine: Machine) -> None:
    machine.recommend_rebalance()
    machine.schedule(3600.0)
    rebalance, maintenance = _looked(instance)
    assert (rebalance.kind, rebalance.seconds) == ("rebalance", None)
    assert maintenance.kind == "maintenance"
    assert maintenance.id.startswith("instance-event-0d59937288b749b32-")
    assert maintenance.seconds is not None
    assert 3596.0 <= maintenance.seconds <= 3600.0
    assert maintenance.what.startswith("system-reboot at ")


@pytest.mark.parametrize("state", ["completed", "canceled"])
def test_ec2_an_event_that_is_over_announces_nothing(instance: NoticeWatch, machine: Machine, state: str) -> None:
    machine.schedule(3600.0, state=state)
    assert _looked(instance) == []


def test_ec2_one_token_for_long_and_maintenance_asked_for_less_often(instance: NoticeWatch, machine: Machine) -> None:
    for _ in range(20):
        _looked(instance)
    assert (machine.asked[TOKEN_CALL], machine.asked[SPOT_CALL], machine.asked[SCHEDULED_CALL]) == (1, 20, 1)


def test_ec2_a_token_is_renewed_before_its_end_and_when_it_is_refused(
    instance: NoticeWatch, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock()
    for module in (imds, imds_aws):
        monkeypatch.setattr(module, "time", clock)
    machine.token_seconds = 10
    for _ in range(20):
        _looked(instance)
        clock.now += 1.0
    assert machine.asked[TOKEN_CALL] == 3
    machine.token_seconds = 21600
    machine.forget_tokens()
    machine.interrupt()
    assert len(_looked(instance)) == 1


@pytest.mark.parametrize(
    ("status", "headers"), [(500, {}), (503, {}), (403, {}), (302, {"Location": "http://127.0.0.1:9/"}), (200, {})]
)
def test_ec2_an_answer_that_is_none_is_trouble(
    instance: NoticeWatch, machine: Machine, status: int, headers: dict[str, str]
) -> None:
    _looked(instance)
    machine.faults = [(status, headers)]
    with pytest.raises(NoticeSourceError, match=r"spot/instance-action: (HTTP|not JSON)"):
        _looked(instance)
    assert _looked(instance) == []


@pytest.mark.parametrize("text", ["[]", "{", "{}", '{"time": "2026-11-21T18:00:00Z"}', '{"action": 5}'])
def test_ec2_nonsense_is_trouble(instance: NoticeWatch, machine: Machine, text: str) -> None:
    machine.put(SPOT, text)
    with pytest.raises(NoticeSourceError):
        _looked(instance)


def test_ec2_without_a_token_there_is_no_question(instance: NoticeWatch, machine: Machine) -> None:
    machine.faults = [(403, {})]
    with pytest.raises(NoticeSourceError, match="api/token: HTTP 403"):
        _looked(instance)
    assert machine.asked[SPOT_CALL] == 0


def test_ec2_an_interruption_is_told_though_the_rest_does_not_answer(instance: NoticeWatch, machine: Machine) -> None:
    machine.interrupt()
    machine.put(REBALANCE, "{")
    found: list[MachineNotice] = []
    with pytest.raises(NoticeSourceError):
        instance.look(found.append)
    assert [notice.kind for notice in found] == ["interruption"]


def test_a_service_that_is_slow_or_away_is_trouble_in_time(service: MetadataService, machine: Machine) -> None:
    machine.silent_seconds = 0.5
    with pytest.raises(NoticeSourceError, match=r"^/x: "):
        MetadataClient(service.url, seconds=0.05).ask("/x?secret=1", {})
    with pytest.raises(NoticeSourceError, match="Refused"):
        MetadataClient("http://127.0.0.1:1", seconds=1.0).ask("/x", {})


def test_no_proxy_is_asked(instance: NoticeWatch, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    machine.interrupt()
    assert len(_looked(instance)) == 1


# Compute Engine


@pytest.fixture
def preempted(service: MetadataService) -> NoticeWatch:
    return imds_gcp.watches("gcp", service.url, None, NOWHERE)[0]


@pytest.fixture
def maintenance(service: MetadataService) -> NoticeWatch:
    return imds_gcp.watches("gcp", service.url, None, NOWHERE)[1]


def test_compute_engine_answers_when_it_changes(preempted: NoticeWatch, service: MetadataService) -> None:
    import threading

    assert _looked(preempted) == []
    changer = threading.Timer(0.3, service.machine.preempt)
    began = time.monotonic()
    changer.start()
    (notice,) = _looked(preempted)
    assert time.monotonic() - began >= 0.25
    assert in_time(began, 5.0)
    assert _fields(notice) == ("preempted", "interruption", "gcp")
    assert notice.seconds == 120.0
    assert 119.0 < (notice.left() or 0) <= 120.0


def test_compute_engine_gives_the_notice_that_the_module_asks_for() -> None:
    text = (MODULES / "gcp" / "machines.tf").read_text(encoding="utf-8")
    (seconds,) = re.findall(r'"preemption_notice_duration" \{\n\s+for_each = .+ == "spot" \? \[(\d+)\] : \[\]', text)
    assert float(seconds) == imds_gcp.SPOT_SECONDS


def test_compute_engine_what_was_there_at_the_first_look_may_be_old(preempted: NoticeWatch, machine: Machine) -> None:
    machine.preempt()
    (notice,) = _looked(preempted)
    assert notice.seconds is None


def test_compute_engine_maintenance_comes_goes_and_comes(maintenance: NoticeWatch, machine: Machine) -> None:
    assert _looked(maintenance) == []
    ids = []
    for value in ("TERMINATE_ON_HOST_MAINTENANCE", "NONE", "TERMINATE_ON_HOST_MAINTENANCE"):
        machine.set("maintenance-event", value)
        ids += [_fields(notice) for notice in _looked(maintenance)]
    assert ids == [
        ("TERMINATE_ON_HOST_MAINTENANCE-1", "maintenance", "gcp"),
        ("TERMINATE_ON_HOST_MAINTENANCE-2", "maintenance", "gcp"),
    ]


def test_compute_engine_an_answer_of_somebody_else_is_trouble(preempted: NoticeWatch, machine: Machine) -> None:
    machine.flavored = False
    machine.preempt()
    with pytest.raises(NoticeSourceError, match="not of the metadata server"):
        _looked(preempted)
    machine.flavored = True
    machine.faults = [(503, {})]
    with pytest.raises(NoticeSourceError, match="HTTP 503"):
        _looked(preempted)
    assert len(_looked(preempted)) == 1


def test_compute_engine_after_trouble_it_does_not_wait_for_what_was_missed(
    preempted: NoticeWatch, machine: Machine
) -> None:
    assert _looked(preempted) == []
    machine.faults = [(503, {})]
    with pytest.raises(NoticeSourceError):
        _looked(preempted)
    machine.preempt()
    assert [notice.kind for notice in _looked(preempted)] == ["interruption"]


def test_compute_engine_a_server_that_does_not_hang_is_asked_once_a_second(
    preempted: NoticeWatch, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imds_gcp, "HANG_SECONDS", 0)
    monkeypatch.setattr(imds_gcp, "time", _Clock())
    assert preempted.look(lambda _: None) == 0.0
    assert preempted.look(lambda _: None) == 1.0


# Azure


@pytest.fixture
def events(service: MetadataService) -> imds_azure.ScheduledEventsWatch:
    (watch,) = imds_azure.watches("azure", service.url, None, NOWHERE)
    assert isinstance(watch, imds_azure.ScheduledEventsWatch)
    return watch


def test_azure_an_eviction_of_this_machine_and_not_of_another(
    events: imds_azure.ScheduledEventsWatch, machine: Machine
) -> None:
    machine.ahead = timedelta(hours=9)
    machine.event("other", resources=("vm1", "vm2"))
    assert _looked(events) == []
    machine.event(resources=("vm7", "VM0"), seconds=30.0)
    (notice,) = _looked(events)
    assert _fields(notice) == ("C7061BAC-AFDC-4513-B24B-AA5F13A16123", "interruption", "azure")
    assert notice.seconds is not None
    assert 26.9 <= notice.seconds <= 30.0
    assert notice.what.startswith("Preempt, not before ")


@pytest.mark.parametrize(
    ("kind", "word"),
    [("Freeze", "maintenance"), ("Reboot", "maintenance"), ("Redeploy", "maintenance"), ("Terminate", "interruption")],
)
def test_azure_kinds(events: imds_azure.ScheduledEventsWatch, machine: Machine, kind: str, word: str) -> None:
    machine.event(kind=kind)
    assert [notice.kind for notice in _looked(events)] == [word]


def test_azure_a_document_is_read_once_and_what_began_has_no_time(
    events: imds_azure.ScheduledEventsWatch, machine: Machine
) -> None:
    machine.event()
    assert len(_looked(events)) == 1
    assert _looked(events) == []
    machine.event(status="Started")
    assert [notice.seconds for notice in _looked(events)] == [0.0]
    machine.event(status="Completed")
    assert _looked(events) == []


def test_azure_the_first_question_may_take_long(
    events: imds_azure.ScheduledEventsWatch, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert imds_azure.FIRST_TIMEOUT > 120
    monkeypatch.setattr(events._service, "_seconds", 0.2)
    _looked(events)
    machine.silent_seconds = 0.5
    with pytest.raises(NoticeSourceError):
        _looked(events)
    (fresh,) = imds_azure.watches("azure", events._service._url.geturl(), None, NOWHERE)
    machine.event()
    assert len(_looked(fresh)) == 1


def test_azure_is_acknowledged_only_when_told(events: imds_azure.ScheduledEventsWatch, machine: Machine) -> None:
    machine.event("e-1")
    _looked(events)
    assert machine.acknowledged == []
    events.acknowledge("e-1")
    assert machine.acknowledged == ["e-1"]
    machine.faults = [(400, {})]
    with pytest.raises(NoticeSourceError, match="HTTP 400"):
        events.acknowledge("e-1")


@pytest.mark.parametrize("text", ["[]", "{"])
def test_azure_nonsense_is_trouble(
    events: imds_azure.ScheduledEventsWatch, machine: Machine, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = machine.answer
    monkeypatch.setattr(
        machine, "answer", lambda m, p, *rest: (200, {}, text) if p.endswith("events") else plain(m, p, *rest)
    )
    with pytest.raises(NoticeSourceError, match="not an object"):
        _looked(events)


# A folder


def test_a_file_that_appears_is_a_notice_once(tmp_path: Path) -> None:
    (watch,) = imds_files.watches("files", None, None, tmp_path)
    assert _looked(watch) == []
    file = tmp_path / "notice.json"
    for number, said in enumerate([{"kind": "interruption", "seconds": 20, "what": "drill", "id": "n-1"}] * 2):
        (tmp_path / "new").write_text(json.dumps({**said, "id": f"n-{number}"}))
        (tmp_path / "new").rename(file)
        (notice,) = _looked(watch)
        assert (_fields(notice), notice.seconds) == ((f"n-{number}", "interruption", "sandbox"), 20.0)
        assert _looked(watch) == []


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ('{"kind": "rebalance"}', None),
        ('{"kind": "health", "seconds": true}', None),
        ('{"kind": "health", "seconds": NaN}', None),
        ('{"kind": "maintenance", "seconds": -3}', 0.0),
    ],
)
def test_only_the_kind_is_needed(tmp_path: Path, said: str, seconds: float | None) -> None:
    (watch,) = imds_files.watches("files", str(tmp_path), 0.05, NOWHERE)
    (tmp_path / "notice.json").write_text(said)
    (notice,) = _looked(watch)
    assert notice.seconds == seconds
    assert notice.id.startswith("file-")


def test_half_a_file_is_read_again(tmp_path: Path) -> None:
    (watch,) = imds_files.watches("files", None, None, tmp_path)
    for wrong in ('{"kind": "interr', '{"kind": "lunch"}', "[]"):
        (tmp_path / "notice.json").write_text(wrong)
        with pytest.raises(NoticeSourceError):
            _looked(watch)
    (tmp_path / "notice.json").write_text('{"kind": "interruption"}')
    assert len(_looked(watch)) == 1
