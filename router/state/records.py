"""The records of the state database, as frozen values. Times are UTC; money is exact."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from pricing.money import Usd, UsdPerHour
from pricing.offers import MachinePool
from pricing.places import Market


class Phase(StrEnum):
    """The phase of an attempt. From ``PROVISIONING`` on machines may exist; in the last two there are none any more.

    ``RESUMING``: all ranks met, the training reads what an earlier attempt saved. ``NOTICED``: a machine is to be
    preempted; ``CHECKPOINTING``: every rank was told to save; ``MIGRATING``: the checkpoint is saved, or there was no
    time, and the job is moved elsewhere.
    """

    PLANNED = "planned"
    PROVISIONING = "provisioning"
    READY = "ready"
    RESUMING = "resuming"
    RUNNING = "running"
    NOTICED = "noticed"
    CHECKPOINTING = "checkpointing"
    MIGRATING = "migrating"
    RELEASING = "releasing"
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """True if nothing exists any more, and nothing will."""
        return self in (Phase.FINISHED, Phase.FAILED)

    @property
    def is_up(self) -> bool:
        """True if the gang is complete, and its training runs or is about to."""
        return self in _UP


_UP = frozenset({Phase.READY, Phase.RESUMING, Phase.RUNNING, Phase.NOTICED, Phase.CHECKPOINTING, Phase.MIGRATING})


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to run a gang in one place; ``job``, ``gang``, ``start`` and ``end`` name the order of its plan.

    ``choice`` 0 is the plan's own place, 1 its next one, and so on; ``number`` counts the attempts of the order from 1.
    ``token_hash`` is the SHA-256 in hex of the token that its machines present. ``made_at`` is when its first machine
    may have come to exist, ``met_at`` when all ranks had called, ``gone_at`` when the last machine was surely gone.
    ``result`` is how the training ended, as its ranks reported ("" while it runs): ``finished``, else a reason of
    :mod:`router.agent.protocol`; the coordinator writes it and ``met_at``, the controller, which creates and releases
    machines, the rest. ``reason`` says why an attempt is over: ``finished``, a :class:`~router.faults.fault.FaultKind`,
    ``crashed``, ``put_off``, ``interrupted``, ``lost``, ``moved``,
    ``given_up``; ``message`` the same for a person. ``version`` rises with every change.

    ``resumes``: the attempt that this one resumes from ("": none), at ``first_step``, the last step that was confirmed
    to be saved, with ``first_manifest``. ``checkpoint_seconds``: how often the training is to save; None: it decides
    itself. ``order_id`` ("": none): every rank is told to save, within ``order_seconds`` from ``ordered_at``, which is
    the real time of day whatever the cloud's clock says; ``order_reason`` is a word of :mod:`router.agent.protocol`.
    When it is over: ``last_step`` was reached, ``kept_step`` saved; what lies between them was lost. ``policy`` is the
    policy that runs it, as text of :class:`router.jobs.run_policy.RunPolicy`; "" where none is recorded.
    ``quoted_policy``: the policy of its quote if the deploy file's was to run instead; else "".
    """

    id: str
    plan: str
    job: str
    job_digest: str
    gang: str
    start: datetime
    end: datetime
    choice: int
    number: int
    cloud: str
    region: str
    machines: int
    engine: str
    team: str
    project: str | None
    cost_center: str | None
    usd_per_hour: UsdPerHour
    max_usd_per_hour: UsdPerHour
    at_risk_usd: Usd
    directory: str
    token_hash: str
    created_at: datetime
    phase: Phase = Phase.PLANNED
    made_at: datetime | None = None
    met_at: datetime | None = None
    result: str = ""
    result_at: datetime | None = None
    gone_at: datetime | None = None
    reason: str = ""
    message: str = ""
    resumes: str = ""
    first_step: int = 0
    first_manifest: str = ""
    checkpoint_seconds: float | None = None
    order_id: str = ""
    order_reason: str = ""
    order_seconds: float = 0.0
    ordered_at: datetime | None = None
    last_step: int | None = None
    kept_step: int | None = None
    policy: str = ""
    quoted_policy: str = ""
    version: int = 1

    @property
    def planned_time(self) -> timedelta:
        """Return how long its gang was planned to run; one that resumes was planned anew when it was made."""
        return max(self.end - (self.created_at if self.resumes else self.start), timedelta(0))


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One machine of an attempt. ``usd_per_hour`` is the price planned for it, its ceiling ``max_usd_per_hour``.

    From the cloud: ``machine_id``, addresses. It is billed from ``made_at`` until ``gone_at``. From its agent:
    ``agent`` is its state (:mod:`router.agent.protocol`; "" before it called), ``heard_at`` when it last called,
    ``incarnation`` which process of the agent that was; ``ended_reason``, ``exit_code``, ``ended_message`` how it
    ended. ``log_offset`` is the next byte of its output, ``log_size`` the length of the file with it. ``step`` is how
    far the training reported to be, ``step_seconds`` how long one step takes; ``saved_step`` the last checkpoint that
    it reported complete, at ``saved_at``, and ``saved_manifest`` where its manifest is. ``progress_at``: when ``step``
    last changed; before the first step, when it last printed something. ``price_as_of``,
    ``price_source``: the source of its price, as of which day; ``on_demand_usd_per_hour``: the list price of the same
    machine there on demand, when it was planned to be created; None: not known. For a reserved machine ``usd_per_hour``
    is the amortised price (0 where ``reservation_cost`` says sunk or unknown), and its ceiling is 0: nothing more is to
    be paid.
    """

    attempt: str
    rank: int
    name: str
    zone: str | None
    instance_type: str
    market: Market
    accelerator: str
    accelerators: int
    usd_per_hour: UsdPerHour
    max_usd_per_hour: UsdPerHour
    machine_id: str | None = None
    address: str | None = None
    private_address: str | None = None
    made_at: datetime | None = None
    gone_at: datetime | None = None
    agent: str = ""
    incarnation: str = ""
    agent_address: str = ""
    master_port: int | None = None
    heard_at: datetime | None = None
    ended_reason: str = ""
    exit_code: int | None = None
    ended_message: str = ""
    log_offset: int = 0
    log_size: int = 0
    step: int | None = None
    step_seconds: float | None = None
    saved_step: int | None = None
    saved_manifest: str | None = None
    saved_at: datetime | None = None
    progress_at: datetime | None = None
    price_as_of: str = ""
    price_source: str = ""
    on_demand_usd_per_hour: UsdPerHour | None = None
    reservation_cost: str = ""

    @property
    def unpriced(self) -> bool:
        """True if nobody knows its cost: a reserved machine without a stated price.

        That includes one recorded at 0 before prices of reservations were stored.
        """
        if self.market is not Market.RESERVED:
            return False
        return self.reservation_cost == "unknown" or (not self.reservation_cost and not self.usd_per_hour.nanos)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One action that was begun or done, written before the next one begins.

    ``details`` is JSON data without secrets.
    """

    seq: int
    at: datetime
    attempt: str
    what: str
    details: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoticeRecord:
    """A notice to a machine, as its agent reported it; the coordinator heard it at ``heard_at``.

    ``id`` is the announcement's own, one per attempt and rank; ``kind`` a word of :mod:`router.agent.protocol`.
    ``seconds``: how long was left when it was reported; None: not known.
    """

    attempt: str
    rank: int
    id: str
    kind: str
    source: str
    seconds: float | None
    what: str
    heard_at: datetime


# Any region or instance type: a shortage of a whole cloud or region.
ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class Shortage(MachinePool):
    """A pool that could not deliver ``machines``; until ``until`` it is considered short.

    ``instance_type`` :data:`ANY` stands for all of a region, and ``region`` too for all of a cloud.
    """

    machines: int
    at: datetime
    until: datetime
    why: str


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An action of a person, with the money at stake.

    ``hash`` is SHA-256 over the rest and ``previous``: the chain breaks where somebody changes or removes an entry.
    """

    seq: int
    at: datetime
    who: str
    what: str
    digest: str
    usd: Usd
    details: dict[str, object]
    previous: str
    hash: str
