"""Keep matched months beside the ledger's extract: what a month's facts sum to, and what that was computed from.

A manifest for each month names its tables by their SHA-256 and is renamed into place when they are there, so that a
process that is killed leaves what was kept, or the new. A kept month can be deleted at any time, and is matched again.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from pydantic import TypeAdapter

from pricing.atomic_file import make_private_folder, open_atomic, write_atomic
from router.showback.bill_store import file_sha256
from router.showback.reconcile.levels import ResourceKind

if TYPE_CHECKING:
    import pyarrow as pa

    from router.ledger.month import Month
    from router.showback.ledger_extract import ExtractManifest

# The tables of a month: what its bills name, by which later entries bear on it, and four sums of its facts.
NAMES: Final = "names"
SUMMED: Final = ("sums", "days", "corrections", "sides")
_OPTIONS: Final[Mapping[str, Any]] = {"compression": "zstd", "compression_level": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptMonth:
    """A month as it was matched.

    ``digest`` is of what is not in the ledger: bills, corrections, release. ``head``, ``hash`` and ``gaps``: the ledger
    whose entries are in it, or bear on nothing in it. ``recorded_at``: when the last that bears was recorded. ``span``:
    the time of its books, and ``around``: the time from which entries bear. ``kinds``: of what its bills know ids, and
    the last books that these are in. ``known_elsewhere``: whether bills of other months know ids of those kinds for
    which it mattered. ``through``: until when its bills have usage. ``files``: SHA-256 by table; without :data:`SUMMED`
    only the kinds are known.
    """

    digest: str
    head: int
    hash: str
    gaps: tuple[tuple[int, int], ...]
    recorded_at: datetime | None
    span: tuple[datetime, datetime]
    around: tuple[datetime, datetime]
    kinds: Mapping[ResourceKind, str]
    known_elsewhere: Mapping[ResourceKind, bool]
    through: datetime | None
    stem: str
    files: Mapping[str, str]

    def upto(self, manifest: ExtractManifest) -> Self:
        """Return it with the ledger of the manifest, of which nothing more bears on it."""
        return replace(self, head=manifest.head, hash=manifest.hash, gaps=manifest.gaps)


def table_path(folder: Path, month: Month, kept: KeptMonth, table: str) -> Path:
    """Return the file of a table."""
    return folder / f"{month}.{kept.stem}.{table}.parquet"


def read_kept_month(folder: Path, month: Month, tables: Collection[str]) -> KeptMonth | None:
    """Read the kept month; None where it has not all those tables, or one of them is not as it was written."""
    try:
        fields: dict[str, Any] = json.loads(_manifest(folder, month).read_text(encoding="utf-8"))
        fields["kinds"] = {(cloud, what): last for cloud, what, last in fields["kinds"]}
        fields["known_elsewhere"] = {(cloud, what): known for cloud, what, known in fields["asked"]}
        kept = TypeAdapter(KeptMonth).validate_python(fields)
        whole = all(file_sha256(table_path(folder, month, kept, name)) == kept.files[name] for name in tables)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return kept if whole else None


def keep_month(folder: Path, month: Month, kept: KeptMonth, tables: Mapping[str, pa.Table]) -> KeptMonth:
    """Write the tables of a month and then its manifest; the folder's extract is locked. Raises OSError."""
    make_private_folder(folder)
    kept = replace(kept, stem=uuid.uuid4().hex[:8], files={})
    digests = {}
    for name, table in tables.items():
        path = table_path(folder, month, kept, name)
        write_table(path, table)
        digests[name] = file_sha256(path)
    kept = replace(kept, files=digests)
    write_manifest(folder, month, kept)
    # What was kept before, and what killed processes left.
    for path in (*folder.glob(f"{month}.*.parquet"), *folder.glob(f".{month}.*.part")):
        if path.name.split(".")[1] != kept.stem:
            with contextlib.suppress(OSError):
                path.unlink()
    return kept


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table, whole or not at all. Raises OSError."""
    import pyarrow.parquet as pq

    with open_atomic(path) as stream:
        pq.write_table(table, stream, **_OPTIONS)


def write_manifest(folder: Path, month: Month, kept: KeptMonth) -> None:
    """Write the manifest alone, of tables that are there. Raises OSError."""
    fields = asdict(replace(kept, kinds={}, known_elsewhere={}))
    del fields["known_elsewhere"]
    fields["kinds"] = [[cloud, what, last] for (cloud, what), last in kept.kinds.items()]
    fields["asked"] = [[cloud, what, known] for (cloud, what), known in kept.known_elsewhere.items()]
    write_atomic(_manifest(folder, month), json.dumps(fields, default=datetime.isoformat))


def _manifest(folder: Path, month: Month) -> Path:
    return folder / f"{month}.json"
