"""The manifest of a checkpoint, parsed from a file that the job wrote. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

VERSION = 1
LARGEST_BYTES = 64 * 2**20
LONGEST_PATH = 1024
_NAME = re.compile(r"step-(\d{8,18})\.manifest\.json")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# The number of characters of a digest that make a unique name.
_DIGEST_CHARACTERS = 12


def manifest_name(step: int) -> str:
    return f"step-{step:08d}.manifest.json"


def parse_step(name: str) -> int | None:
    """Return the step of a file name; None if it is not a manifest's."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


@dataclass(frozen=True)
class CheckpointFile:
    """One file of a checkpoint; ``path`` is relative to the manifest, with slashes."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class CheckpointManifest:
    """The manifest of a checkpoint; ``text`` is its content as written."""

    step: int
    attempt: str
    created: str
    files: tuple[CheckpointFile, ...]
    text: bytes = field(repr=False)

    @property
    def name(self) -> str:
        return manifest_name(self.step)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def said(self) -> Any:
        return json.loads(self.text)

    def is_same(self, other: CheckpointManifest) -> bool:
        """Return whether the other manifest is of this checkpoint, wherever its files lie."""
        mine, its = (sorted((file.sha256, file.bytes) for file in m.files) for m in (self, other))
        return (self.step, self.attempt, self.created, mine) == (other.step, other.attempt, other.created, its)

    def beside(self, taken: Mapping[str, str]) -> CheckpointManifest:
        """Return this checkpoint with paths that no other checkpoint uses for other content.

        ``taken``: paths of other checkpoints, with the digests that they have there.
        """
        moved = {
            file.path: f"step-{self.step:08d}/moved-{file.sha256[:_DIGEST_CHARACTERS]}/{file.path.rpartition('/')[2]}"
            for file in self.files
            if taken.get(file.path, file.sha256) != file.sha256
        }
        if not moved:
            return self
        content = self.said()
        for entry in content["files"]:
            entry["path"] = moved.get(entry["path"], entry["path"])
        return parse_manifest(self.name, json.dumps(content).encode())


def parse_manifest(name: str, text: bytes) -> CheckpointManifest:
    """Return the manifest in a file of that name. ValueError for anything that breaks the contract.

    That is another step than its name says, paths that lead out of the folder or to a manifest, or a missing digest.
    """
    try:
        content = json.loads(text)
        if (content["version"], content["step"]) != (VERSION, parse_step(name)) or isinstance(content["step"], bool):
            raise ValueError("not of this version, or of another step")
        files = {entry["path"]: _file(entry) for entry in content["files"]}
        if len(files) != len(content["files"]):
            raise ValueError("a file twice")
        attempt, created = content["attempt"], content.get("created", "")
        if not isinstance(attempt, str) or not isinstance(created, str):
            raise ValueError("attempt or created: no text")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{name} cannot be read as a manifest: {type(error).__name__} {error}") from None
    return CheckpointManifest(content["step"], attempt, created, tuple(files.values()), text)


def _file(entry: Any) -> CheckpointFile:
    path, size, digest = entry["path"], entry["bytes"], entry["sha256"]
    if leads_outside(path) or ("/" not in path and parse_step(path) is not None):
        raise ValueError("a path that leads outside the folder")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0 or not _SHA256.fullmatch(digest):
        raise ValueError("a file without size or digest")
    return CheckpointFile(path, size, digest)


def leads_outside(path: str) -> bool:
    """Return whether a path is not one of a file below its folder, on every kind of store."""
    odd = any(part in ("", ".", "..") for part in path.split("/")) or "\\" in path or "\0" in path
    return odd or len(path) > LONGEST_PATH


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
