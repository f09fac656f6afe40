"""Store of what the clouds said of accounts: quotas and reservations by cloud, counts of stock, each with its time.

A file a reading, named by moment and digest, and never changed once written. A reading of one cloud keeps what is known
of the others, with the time at which they were read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pricing.atomic_file import write_atomic
from pricing.offers import MachinePool
from pricing.places import Market
from pricing.problems import InvalidInputError
from pricing.units import format_utc
from providers.protocol import AccountAllowances, CapacityReservation, Quota, QuotaUnit, StockHint
from router.prices.bookstore import lock_folder

SCHEMA_VERSION = 1
# The number of readings that stay, as of price books.
READING_LIMIT = 90
LATEST = "latest"
_LOCK_WAIT_S = 60.0
_REMEDY = "stepfare quotas reads them again"
T = TypeVar("T", Quota, CapacityReservation)


@dataclass(frozen=True, slots=True)
class CloudAllowances:
    """Quotas and reservations of one account, as they were at ``read_at``."""

    read_at: datetime
    quotas: tuple[Quota, ...]
    held: tuple[CapacityReservation, ...]


@dataclass(frozen=True, slots=True)
class StockCount(MachinePool):
    """Machines that a cloud counted at ``read_at``; they match offers as a limit of the limits file does."""

    machines: int
    source: str
    read_at: datetime


@dataclass(frozen=True, slots=True)
class AllowanceReading:
    """All that is known of accounts: the latest reading of each cloud, and of each pool's stock."""

    clouds: Mapping[str, CloudAllowances] = field(default_factory=dict)
    stock: tuple[StockCount, ...] = ()


class AllowanceStore:
    """The readings under ``folder``, which is made on the first write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def latest(self) -> AllowanceReading | None:
        """Return the newest reading, None without one. InvalidInputError where it cannot be read."""
        paths = self._paths()
        return read_allowances(paths[-1]) if paths else None

    def add(
        self, now: datetime, allowances: Mapping[str, AccountAllowances], stock: Iterable[tuple[str, StockHint]] = ()
    ) -> Path:
        """Store a reading upon the latest one, and return its file. InvalidInputError where another writer is stuck."""
        with lock_folder(self.folder, _LOCK_WAIT_S, "readings of quotas for a minute"):
            text = allowances_to_json(_merged(self._sound(), now, allowances, stock))
            digest = hashlib.sha256(text.encode()).hexdigest()
            path = self.folder / f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{digest[:16]}.json"
            write_atomic(path, text, mode=0o600)
            for old in self._paths()[:-READING_LIMIT]:
                old.unlink(missing_ok=True)
        return path

    def _sound(self) -> AllowanceReading:
        for path in reversed(self._paths()):
            try:
                return read_allowances(path)
            except InvalidInputError:
                continue
        return AllowanceReading()

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("*.json"))


def _merged(
    before: AllowanceReading,
    now: datetime,
    allowances: Mapping[str, AccountAllowances],
    stock: Iterable[tuple[str, StockHint]],
) -> AllowanceReading:
    """Return a reading with the clouds and pools that were read now, and the earlier ones of all others."""
    fresh = {name: CloudAllowances(now, one.quotas, one.held) for name, one in allowances.items()}
    counts = {count.key: count for count in before.stock}
    for cloud, hint in stock:
        # Reserved machines are for sale by the block, and no job can be placed on them before they are bought.
        if hint.machines is not None and hint.market is not Market.RESERVED:
            place = (cloud, hint.region, hint.zone, hint.instance_type, hint.market)
            count = StockCount(*place, hint.machines, hint.source, now)
            counts[count.key] = count
    return AllowanceReading({**before.clouds, **fresh}, tuple(counts[key] for key in sorted(counts)))


def allowances_to_json(reading: AllowanceReading) -> str:
    """Return the reading as JSON; equal readings give equal bytes."""
    clouds = {
        name: {
            "read_at": format_utc(one.read_at),
            "quotas": [_plain(quota) for quota in one.quotas],
            "held": [_plain(held) for held in one.held],
        }
        for name, one in sorted(reading.clouds.items())
    }
    document = {"schema_version": SCHEMA_VERSION, "clouds": clouds, "stock": [_plain(one) for one in reading.stock]}
    return json.dumps(document, indent=2) + "\n"


def read_allowances(path: Path) -> AllowanceReading:
    """Return the reading in a file, stored or written by ``stepfare quotas -o json``.

    InvalidInputError where it is none.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema_version {document['schema_version']} is not {SCHEMA_VERSION}")
        clouds = {str(name): _cloud(one) for name, one in document["clouds"].items()}
        return AllowanceReading(clouds, tuple(_count(one) for one in document.get("stock", ())))
    except OSError as error:
        raise InvalidInputError.single(
            f"cannot be read: {error.strerror or error}", where=str(path), remedy=_REMEDY
        ) from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError.single(
            f"holds no quotas that were read: {error!r}", where=str(path), remedy=_REMEDY
        ) from None


def load_allowances(name: str, store: AllowanceStore) -> AllowanceReading:
    """Return the latest reading, or that in the file of this name. InvalidInputError where there is none."""
    if name != LATEST:
        return read_allowances(Path(name).expanduser())
    latest = store.latest()
    if latest is None:
        raise InvalidInputError.single("no quotas were read yet", field="--quotas latest", remedy="stepfare quotas")
    return latest


def _cloud(content: Mapping[str, Any]) -> CloudAllowances:
    return CloudAllowances(
        read_at=_read_time(content["read_at"]),
        quotas=tuple(_quota(one) for one in content["quotas"]),
        held=tuple(_reservation(one) for one in content["held"]),
    )


def _quota(content: Mapping[str, Any]) -> Quota:
    quota = _made(Quota, content)
    return replace(
        quota,
        families=tuple(quota.families),
        market=None if quota.market is None else Market(quota.market),
        unit=QuotaUnit(quota.unit),
    )


def _reservation(content: Mapping[str, Any]) -> CapacityReservation:
    start, end = (None if content[name] is None else _read_time(content[name]) for name in ("start", "end"))
    return replace(_made(CapacityReservation, content), start=start, end=end)


def _count(content: Mapping[str, Any]) -> StockCount:
    return StockCount(**{**content, "market": Market(content["market"]), "read_at": _read_time(content["read_at"])})


def _made(kind: type[T], content: Mapping[str, Any]) -> T:
    """Return the value whose fields the mapping holds; TypeError for other fields."""
    unknown = content.keys() - {one.name for one in fields(kind)}
    if unknown:
        raise TypeError(f"unknown fields: {', '.join(sorted(unknown))}")
    return kind(**content)


def _plain(value: Quota | CapacityReservation | StockCount) -> dict[str, Any]:
    return {name: format_utc(one) if isinstance(one, datetime) else one for name, one in asdict(value).items()}


def _read_time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return moment
