"""The interruption risk of spot pools: values, a table, the ledger of one pool, JSON and CSV. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pricing.book import PriceBook
from pricing.hazard import AGE_SCALE_HOURS, Hazard, HazardShape, operational_time
from pricing.machines import Machine
from pricing.offers import Offer
from pricing.pool_experience import ExperienceKind, LossReason, PoolExperience, PoolLosses
from pricing.risk import GangRisk
from router.render.record_table import SCHEMA_VERSION, RecordTable, TableColumn, attribute_columns, json_document
from router.render.tables import PLAIN, Screen, format_table, wrap_text

#: The hours for which the chance of no interruption is told, and the ages at which the rate is.
TOLD_CHANCES: Final = (8.0, 24.0)
TOLD_AGES: Final = (0.0, 1.0, 4.0, 12.0, 24.0)
#: The words by which a prior says that it rests on no published measurement (``weak`` of interruption_priors.csv).
UNPUBLISHED: Final = "nobody has published any"


@dataclass(frozen=True, slots=True)
class PossibleWatch:
    """Something that may be seen of a pool: interruptions, and the lives of one machine in which they fell."""

    what: str
    interruptions: int
    lives: int
    hours: float

    def exposure(self, shape: HazardShape) -> float:
        """Return the operational time of these lives, each from its own age 0."""
        return self.lives * operational_time(shape, self.hours)


WATCHES: Final = (
    PossibleWatch("one interruption tomorrow, an hour after the start", 1, 1, 1.0),
    PossibleWatch("one interruption after a day of running", 1, 1, 24.0),
    PossibleWatch("three interruptions, each after 2 h", 3, 3, 2.0),
    PossibleWatch("four machines for 10 h without one", 0, 4, 10.0),
    PossibleWatch("one machine for a week without one", 0, 1, 168.0),
)


@dataclass(frozen=True, slots=True)
class RiskChange:
    """The effect that seeing something would have: the median level and the chance of no interruption in 24 h."""

    watch: PossibleWatch
    exposure: float
    median: float
    chance: float


REASON_WORDS: Final = {
    LossReason.CAPACITY: "capacity",
    LossReason.PRICE: "own price limit",
    LossReason.MAINTENANCE: "maintenance",
    LossReason.HOST: "host failure",
}


@dataclass(frozen=True, slots=True)
class PoolRisk:
    """The interruption risk of one machine of a spot pool, with the records of the pool itself, and losses by reason.

    ``losses`` are those of gangs; only losses of capacity are in the risk.
    """

    offer: Offer
    machine: Machine
    risk: GangRisk
    experience: tuple[PoolExperience, ...]
    losses: tuple[PoolLosses, ...] = ()

    @property
    def place(self) -> str:
        """Return cloud and zone, or region where the offer is of no zone."""
        return f"{self.offer.cloud}/{self.offer.zone or self.offer.region}"

    @property
    def pool(self) -> str:
        """Return the pool as commands take it: ``aws/us-east-1/use1-az1/p5.48xlarge``, without a zone where none is."""
        offer = self.offer
        return "/".join(filter(None, (offer.cloud, offer.region, offer.zone, offer.instance_type)))

    @property
    def hazard(self) -> Hazard:
        return self.risk.machine

    @property
    def median(self) -> float:
        return self.hazard.quantile(0.5)

    @property
    def interval(self) -> tuple[float, float]:
        """Return the levels that hold four times in five."""
        return self.hazard.interval

    @property
    def is_constant(self) -> bool:
        """Return whether the level is a rate an hour, the same at any age."""
        return self.hazard.shape is HazardShape.CONSTANT

    @property
    def is_unpublished(self) -> bool:
        """Return whether nobody has published any measurement of such machines, and the pool's own is not enough."""
        return UNPUBLISHED in self.risk.weak

    @property
    def interruptions(self) -> float:
        """Return the interruptions recorded in the pool itself; older ones count less."""
        return sum(record.interruptions for record in self.experience)

    @property
    def hours(self) -> float:
        """Return the hours recorded in the pool itself; older ones count less."""
        return sum(record.hours for record in self.experience)

    @property
    def losses_by_reason(self) -> dict[LossReason, float | None]:
        """Return the losses recorded in the pool itself by reason; None: no record could show one for that reason.

        Observations of availability know losses of capacity alone; gangs know all reasons. Older ones count less.
        """
        has_gangs = any(record.kind is ExperienceKind.GANGS for record in self.experience)
        counts: dict[LossReason, float | None] = {
            reason: sum(row.losses for row in self.losses if row.reason is reason) if has_gangs else None
            for reason in LossReason
        }
        return {**counts, LossReason.CAPACITY: self.interruptions if self.experience else None}

    @property
    def without_reason(self) -> float:
        """Return the losses without a recorded reason, which count as losses of capacity."""
        return sum(row.losses for row in self.losses if row.reason is None)

    @property
    def told_losses(self) -> tuple[tuple[str, str], ...]:
        """Return a row in words for each reason: its name, and how many losses; none without a record."""
        if not self.experience:
            return ()
        rows = []
        for reason, count in self.losses_by_reason.items():
            text = "not recorded" if count is None else f"{count:.2g}"
            if reason is LossReason.CAPACITY and self.without_reason:
                text += f", {self.without_reason:.2g} of them without a recorded reason"
            rows.append((REASON_WORDS[reason], text))
        return tuple(rows)

    @property
    def basis(self) -> tuple[str, ...]:
        """Return the levels of evidence, nearest first."""
        return tuple(dict.fromkeys(row.level for row in self.risk.evidence))

    @property
    def changes(self) -> tuple[RiskChange, ...]:
        """Return what each of :data:`WATCHES` would make of it; nothing changes a rate that an owner states."""
        if len(self.hazard.levels) == 1:
            return ()
        found = []
        for watch in WATCHES:
            exposure = watch.exposure(self.hazard.shape)
            after = self.hazard.observed(watch.interruptions, exposure)
            found.append(RiskChange(watch, exposure, after.quantile(0.5), after.survival(TOLD_CHANCES[-1])))
        return tuple(found)


_LEGEND = (
    "LEVEL: the median; a machine of age t is interrupted",
    f"LEVEL / ({AGE_SCALE_HOURS:g} h + t) times an hour, with /h LEVEL times at any age",
    "80%: four times in five it lies there; 8 H, 24 H: chance of no interruption of",
    "a new machine; OWN: recorded in the pool itself, older records counting less",
)
_GUESS = "~ nobody has published any measurement of such machines: a wide guess"


def two_digits(value: float) -> str:
    """Return a level or rate with two significant digits, such as ``0.20``, ``1.3`` or ``0.013``."""
    digits = 0 if value >= 9.95 else 1 if value >= 0.995 else 2 if value >= 0.0995 else 3
    return f"{value:.{digits}f}"


def format_level(risk: PoolRisk) -> str:
    """Return the median level, with ``/h`` where it is a rate an hour and ``~`` where nobody has published any."""
    return f"{'~' if risk.is_unpublished else ''}{two_digits(risk.median)}{'/h' if risk.is_constant else ''}"


def format_interval(risk: PoolRisk) -> str:
    """Return the levels that hold four times in five, such as ``0.050-0.81``."""
    low, high = risk.interval
    return f"{two_digits(low)}-{two_digits(high)}"


def format_own(risk: PoolRisk) -> str:
    """Return the pool's own interruptions and hours, such as ``2 in 41 h``; ``none`` without a record."""
    return f"{risk.interruptions:.2g} in {risk.hours:,.0f} h" if risk.experience else "none"


def table(risks: Sequence[PoolRisk], screen: Screen = PLAIN) -> str:
    """Return a table that fits the screen, with a legend."""
    legend = [*_LEGEND, *([_GUESS] if any(risk.is_unpublished for risk in risks) else [])]
    return "\n".join([_POOLS.text(risks, screen), "", *legend]) + "\n"


def wide(risks: Sequence[PoolRisk], screen: Screen = PLAIN) -> str:
    """Return a table of all figures with the evidence in words, as wide as needed."""
    return _POOLS.text(risks, screen, wide=True) + "\n"


def ledger(risk: PoolRisk, screen: Screen = PLAIN) -> str:
    """Return all that is known of one pool: level, chances, evidence, rates by age, and what would change it."""
    offer, machine = risk.offer, risk.machine
    low, high = (two_digits(level) for level in risk.interval)
    gpus = f"{machine.accelerator_count} {machine.accelerator}"
    by_age = "the same at any age" if risk.is_constant else f"level / ({AGE_SCALE_HOURS:g} h + age) an hour"
    facts = [
        ("level", f"{two_digits(risk.median)}{'/h' if risk.is_constant else ''}, four times in five {low} to {high}"),
        ("rate", by_age),
        *((f"no hit in {hours:.0f} h", _percent(risk.hazard.survival(hours))) for hours in TOLD_CHANCES),
        ("own record", _own_in_words(risk)),
        ("hardware", f"fails on top, every {1 / risk.risk.hardware_per_hour:,.0f} h in the mean"),
        ("doubt", risk.risk.weak or "none"),
    ]
    return "\n".join(
        [
            screen.heading(f"{offer.place}: {offer.instance_type} ({gpus}), spot"),
            *(wrap_text(f"{name:<16}{text}", width=screen.width) for name, text in facts),
            "",
            screen.heading("WHAT IT RESTS ON, the nearest evidence first"),
            *(_evidence(row.level, row.text, row.as_of, screen.width) for row in risk.risk.evidence),
            "",
            *_losses(risk, screen),
            _ages(risk, screen),
            "",
            _changes(risk.changes, risk, screen),
        ]
    )


def _losses(risk: PoolRisk, screen: Screen) -> list[str]:
    if not risk.told_losses:
        return []
    heading = screen.heading("OWN LOSSES BY REASON, of which capacity alone is in the level")
    return [heading, *(f"{name:<16}{text}" for name, text in risk.told_losses), ""]


def _own_in_words(risk: PoolRisk) -> str:
    if not risk.experience:
        return "none: nobody was seen to hold, or to look for, such a machine there"
    runs, last = sum(record.runs for record in risk.experience), max(record.last_at for record in risk.experience)
    return f"{format_own(risk)} of {runs:,} lives, the last on {last:%Y-%m-%d}"


def _evidence(level: str, text: str, as_of: str, width: int) -> str:
    dated = f" ({as_of})" if as_of and as_of not in text else ""
    return wrap_text(f"{level:<16}{text}{dated}", width=width)


def _ages(risk: PoolRisk, screen: Screen) -> str:
    header = ("AGE", *(f"{age:.0f} h" for age in TOLD_AGES))
    cells = ("interruptions an hour", *(two_digits(risk.hazard.rate_at(age)) for age in TOLD_AGES))
    return format_table(header, [cells], frozenset(header[1:]), {}, screen)


def _changes(changes: Sequence[RiskChange], risk: PoolRisk, screen: Screen) -> str:
    if not changes:
        return "The owner states this rate: nothing that is seen changes it.\n"
    before, chance = two_digits(risk.median), _percent(risk.hazard.survival(TOLD_CHANCES[-1]))
    header = ("WHAT WOULD CHANGE IT", "LEVEL", f"NO HIT IN {TOLD_CHANCES[-1]:.0f} H")
    rows = [(c.watch.what, f"{before} -> {two_digits(c.median)}", f"{chance} -> {_percent(c.chance)}") for c in changes]
    return format_table(header, rows, frozenset(header[1:]), {}, screen) + "\n"


def as_json(risks: Sequence[PoolRisk], book: PriceBook, now: datetime) -> str:
    """Return a JSON object with ``schema_version``, the book and the pools."""
    return json_document(risks_document(risks, book, now), ascii_only=False)


def risks_document(risks: Sequence[PoolRisk], book: PriceBook, now: datetime) -> dict[str, object]:
    """Return the pools as data, each with its evidence and with what would change it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "book": {"digest": book.digest, "as_of": book.as_of.isoformat()},
        "now": now.isoformat(),
        "pools": [_record(risk) for risk in risks],
    }


def as_csv(risks: Sequence[PoolRisk]) -> str:
    """Return a row per pool with its figures, without the evidence behind them; unknown values are ``none``."""
    return _POOLS.csv(risks, unknown="none")


def _record(risk: PoolRisk) -> dict[str, object]:
    figures = _POOLS.record(risk)
    low, high = risk.interval
    return {
        **{name: figures[name] for name in (*_POOL, "shape")},
        "level": {"median": _digits(risk.median), "low": _digits(low), "high": _digits(high)},
        "no_interruption": {f"{hours:.0f}h": _digits(risk.hazard.survival(hours)) for hours in TOLD_CHANCES},
        "interruptions_per_hour_at_age": {f"{age:.0f}h": _digits(risk.hazard.rate_at(age)) for age in TOLD_AGES},
        "hardware_failures_per_hour": _digits(risk.risk.hardware_per_hour),
        "own": {
            "interruptions": _digits(risk.interruptions),
            "hours": _digits(risk.hours),
            "exposure": _digits(sum(record.exposure for record in risk.experience)),
            "lives": sum(record.runs for record in risk.experience),
            "losses": {
                **{
                    reason.value: None if count is None else _digits(count)
                    for reason, count in risk.losses_by_reason.items()
                },
                "without_reason": _digits(risk.without_reason),
            },
        },
        **{name: figures[name] for name in _PUBLISHED},
        "evidence": [{"level": row.level, "text": row.text, "as_of": row.as_of} for row in risk.risk.evidence],
        "would_change": [
            {
                "what": change.watch.what,
                "interruptions": change.watch.interruptions,
                "exposure": _digits(change.exposure),
                "level_median": _digits(change.median),
                "no_interruption_24h": _digits(change.chance),
            }
            for change in risk.changes
        ],
    }


_POOL = ("cloud", "region", "zone", "instance_type", "accelerator", "accelerator_count")
_PUBLISHED = ("interruption_band", "band_as_of", "preempted_share", "unpublished", "weak")


def _percent(share: float) -> str:
    return f"{share:.0%}"


def _digits(value: float) -> float:
    """Return a figure with six significant digits: more of them are noise of the arithmetic."""
    return float(f"{value:.6g}")


def _survival(hours: float) -> TableColumn[PoolRisk]:
    name, heading = f"no_interruption_{hours:.0f}h", f"{hours:.0f} H"
    return TableColumn(name, lambda risk: risk.hazard.survival(hours), heading, _percent, right=True, plain=_digits)


def _losses_field(reason: LossReason) -> TableColumn[PoolRisk]:
    return TableColumn(f"lost_by_{reason.value}", lambda risk: risk.losses_by_reason[reason], plain=_digits)


_POOLS: RecordTable[PoolRisk] = RecordTable(
    (
        *attribute_columns("cloud", "region", "zone", of="offer"),
        TableColumn("", lambda risk: risk.place, "PLACE", width=15, wide=False),
        TableColumn("", lambda risk: risk.pool, "POOL", wide=True),
        TableColumn("instance_type", lambda risk: risk.offer.instance_type, "MACHINE", width=16, wide=False),
        *attribute_columns("accelerator", "accelerator_count", of="machine"),
        TableColumn("", lambda r: f"{r.machine.accelerator_count}x{r.machine.accelerator}", "GPUS", wide=True),
        TableColumn("shape", lambda risk: risk.hazard.shape.value),
        TableColumn("", format_level, "LEVEL", right=True),
        TableColumn("", format_interval, "80%", right=True),
        TableColumn("level_median", lambda risk: risk.median, plain=_digits),
        TableColumn("level_low", lambda risk: risk.interval[0], plain=_digits),
        TableColumn("level_high", lambda risk: risk.interval[1], plain=_digits),
        *map(_survival, TOLD_CHANCES),
        TableColumn("", format_own, "OWN", right=True),
        TableColumn("own_interruptions", lambda risk: risk.interruptions, plain=_digits),
        TableColumn("own_hours", lambda risk: risk.hours, plain=_digits),
        TableColumn("own_lives", lambda risk: sum(r.runs for r in risk.experience), "LIVES", right=True, wide=True),
        TableColumn("interruption_band", lambda risk: risk.offer.interruption_band, "BAND", wide=True),
        TableColumn("band_as_of", lambda risk: risk.offer.band_as_of),
        TableColumn("preempted_share", lambda r: r.offer.preempted_share, "SHARE", _percent, right=True, wide=True),
        TableColumn("unpublished", lambda risk: risk.is_unpublished),
        TableColumn("weak", lambda risk: risk.risk.weak, "DOUBT", wide=True),
        TableColumn("", lambda risk: risk.risk.source, "EVIDENCE", wide=True),
        TableColumn("rests_on", lambda risk: ", ".join(risk.basis), "RESTS ON", width=11, wide=False),
        *map(_losses_field, (LossReason.PRICE, LossReason.MAINTENANCE, LossReason.HOST)),
        TableColumn("lost_without_reason", lambda risk: risk.without_reason, plain=_digits),
    )
)
CSV_FIELDS = _POOLS.fields
