"""Find the files of a delivery: single ones, archives, folders, and those that a cloud's manifest names.

AWS puts a manifest beside each export (``dataFiles``), Azure one beside each run (``blobs``, with the number of rows).
A manifest says what belongs together, and whether anything is missing.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from pricing.problems import InvalidInputError

_MANIFEST = "manifest.json"
_BILLS = (".csv", ".gz", ".parquet", ".zip")


@dataclass(frozen=True, slots=True)
class BillFile:
    """One file of a delivery. ``name`` is its path within what was given; ``rows`` is the count in its manifest."""

    path: Path
    name: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class BillFiles:
    """The files of a delivery.

    ``whole``: manifests name all of them. ``unread`` are files in the same folders that the newest manifests do not
    name.
    """

    files: tuple[BillFile, ...]
    whole: bool
    unread: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class _Manifest:
    """``group`` is shared by the runs of one export for one period; ``order`` sorts them, the newest last."""

    path: Path
    names: Mapping[str, int | None]
    group: tuple[str, ...]
    order: tuple[str, ...]


def find_bill_files(paths: Sequence[Path]) -> BillFiles:
    """Find the files to be read in files, archives, folders and manifests.

    InvalidInputError: a folder without bills, a manifest that cannot be read or names a file that is not there.
    """
    found = [_find_in(path) for path in paths]
    return BillFiles(
        tuple(file for each in found for file in each.files),
        all(each.whole for each in found),
        tuple(path for each in found for path in each.unread),
    )


def _find_in(path: Path) -> BillFiles:
    if path.is_dir():
        return _find_in_folder(path)
    if path.name.lower().endswith(_MANIFEST):
        # AWS keeps manifests in `metadata`, beside the `data` that they name.
        beside = next((each.parent for each in path.parents if each.name == "metadata"), path.parent)
        return BillFiles(tuple(_files_of(_read_manifest(path), beside)), whole=True)
    return BillFiles(tuple(_unpacked(path, path.parent)), whole=False)


def _find_in_folder(folder: Path) -> BillFiles:
    bills, manifests = [], []
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder).parts
        # Spark and others leave `_SUCCESS` and `.part.crc` beside their data.
        if any(part.startswith((".", "_")) for part in inner) or not path.is_file():
            continue
        if path.name.lower().endswith(_MANIFEST):
            manifests.append(_read_manifest(path))
        elif path.name.lower().endswith(_BILLS):
            bills.append(path)
    if not manifests and not bills:
        what = "is a folder without bills"
        raise InvalidInputError.single(what, where=str(folder), remedy=f"bills end in {', '.join(_BILLS)}")
    if not manifests:
        return BillFiles(tuple(file for path in bills for file in _unpacked(path, folder)), whole=False)
    newest = {manifest.group: manifest for manifest in sorted(manifests, key=lambda manifest: manifest.order)}
    files = [file for manifest in newest.values() for file in _files_of(manifest, folder)]
    read = {file.path for file in files}
    return BillFiles(tuple(files), True, tuple(path for path in bills if path not in read))


def _unpacked(path: Path, folder: Path) -> Iterator[BillFile]:
    name = path.relative_to(folder).as_posix()
    if not path.is_file() or not zipfile.is_zipfile(path):
        yield BillFile(path, name)
        return
    try:
        with zipfile.ZipFile(path) as packed:
            members = [each for each in packed.namelist() if each.lower().endswith(_BILLS)]
    except (OSError, zipfile.BadZipFile) as error:
        raise InvalidInputError.single(f"cannot be unpacked: {error}", where=str(path)) from None
    if not members:
        raise InvalidInputError.single("is a zip archive without bills", where=str(path))
    for member in members:
        yield BillFile(path / member, f"{name}/{member}")


def _files_of(manifest: _Manifest, folder: Path) -> Iterator[BillFile]:
    for name, rows in manifest.names.items():
        parts = PurePosixPath(name).parts
        candidates = [path for path in folder.rglob(parts[-1]) if path.is_file()]
        # A download may lack the folders above, which bucket or container had.
        common = {path: _common_end(path.relative_to(folder).parts, parts) for path in candidates}
        # Runs have equal names in folders of their own: the manifest's own folder goes first.
        best = [path for path in candidates if path.parent == manifest.path.parent] or [
            path for path in candidates if common[path] == max(common.values())
        ]
        if len(best) != 1:
            what = f"names {parts[-1]}, which is {'not there' if not best else 'there more than once'}"
            raise InvalidInputError.single(what, where=str(manifest.path), remedy="fetch the whole export")
        yield BillFile(best[0], best[0].relative_to(folder).as_posix(), rows)


def _common_end(first: Sequence[str], second: Sequence[str]) -> int:
    pairs = zip(reversed(first), reversed(second), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _read_manifest(path: Path) -> _Manifest:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        names = dict(_named_files(content))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidInputError.single(f"is no manifest that can be read: {error}", where=str(path)) from None
    if not names:
        what, remedy = "is a manifest that names no bill", "AWS writes dataFiles, Azure blobs"
        raise InvalidInputError.single(what, where=str(path), remedy=remedy)
    run = content.get("runInfo") or {}
    if run:
        export = content.get("exportConfig") or {}
        known = (export.get("resourceId"), export.get("exportName"), run.get("startDate"), run.get("endDate"))
        group = tuple(str(each) for each in known)
    else:
        # A run has a folder of its own below that of its period; the name of the folder begins with the time.
        last = max((number for number, part in enumerate(path.parts) if "=" in part), default=len(path.parts) - 2)
        group = (*path.parts[: last + 1], path.name)
    return _Manifest(path, names, group, (str(run.get("submittedTime", "")), str(path)))


def _named_files(content: Mapping[str, Any]) -> Iterable[tuple[str, int | None]]:
    for blob in content.get("blobs") or ():
        yield blob["blobName"], blob.get("dataRowCount")
    for name in content.get("dataFiles") or ():
        yield urlsplit(name).path.lstrip("/"), None
