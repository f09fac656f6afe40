"""The manifest of a checkpoint, read from what a job wrote. Pure."""

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
# Of a digest, so much makes a name that nothing else has.
_DIGEST_CHARACTERS = 12


def name_of(step: int) -> str:
    """The manifest's file name."""
    return f"step-{step:08d}.manifest.json"


def step_of(name: str) -> int | None:
    """The step of a file name; None where it is no manifest's."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


@dataclass(frozen=True)
class File:
    """One file of a checkpoint; ``path`` is relative to the manifest, with slashes."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """A checkpoint. Two are equal when they say the same; ``text`` is how this one was written."""

    step: int
    attempt: str
    created: str
    files: tuple[File, ...]
    text: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """The manifest's file name."""
        return name_of(self.step)

    @property
    def bytes(self) -> int:
        """What its files weigh."""
        return sum(file.bytes for file in self.files)

    def said(self) -> Any:
        """The object in its text."""
        return json.loads(self.text)

    def is_same(self, other: Manifest) -> bool:
        """Whether the other is this checkpoint, wherever its files lie."""
        mine, its = (sorted((file.sha256, file.bytes) for file in m.files) for m in (self, other))
        return (self.step, self.attempt, self.created, mine) == (other.step, other.attempt, other.created, its)

    def beside(self, taken: Mapping[str, str]) -> Manifest:
        """This checkpoint with paths at which nobody else's content lies. ``taken``: paths of other checkpoints, with
        the digests that they have there."""
        moved = {
            file.path: f"step-{self.step:08d}/moved-{file.sha256[:_DIGEST_CHARACTERS]}/{file.path.rpartition('/')[2]}"
            for file in self.files
            if taken.get(file.path, file.sha256) != file.sha256
        }
        if not moved:
            return self
        said = self.said()
        for entry in said["files"]:
            entry["path"] = moved.get(entry["path"], entry["path"])
        return parse(self.name, json.dumps(said).encode())


def parse(name: str, text: bytes) -> Manifest:
    """The manifest in a file of that name. ValueError for anything that does not keep to the contract: another step
    than its name says, paths that lead out of the folder or to a manifest, no digest."""
    try:
        said = json.loads(text)
        if (said["version"], said["step"]) != (VERSION, step_of(name)) or isinstance(said["step"], bool):
            raise ValueError("not of this version, or of another step")
        files = {entry["path"]: _file(entry) for entry in said["files"]}
        if len(files) != len(said["files"]):
            raise ValueError("a file twice")
        attempt, created = said["attempt"], said.get("created", "")
        if not isinstance(attempt, str) or not isinstance(created, str):
            raise ValueError("attempt or created: no text")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{name} cannot be read as a manifest: {type(error).__name__} {error}") from None
    return Manifest(said["step"], attempt, created, tuple(files.values()), text)


def _file(entry: Any) -> File:
    path, size, digest = entry["path"], entry["bytes"], entry["sha256"]
    parts = path.split("/")
    outside = any(part in ("", ".", "..") for part in parts) or "\\" in path or "\0" in path
    if outside or len(path) > LONGEST_PATH or (len(parts) == 1 and step_of(path) is not None):
        raise ValueError("a path that leads elsewhere")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0 or not _SHA256.fullmatch(digest):
        raise ValueError("a file without size or digest")
    return File(path, size, digest)


def digest(data: bytes) -> str:
    """SHA-256, in hex."""
    return hashlib.sha256(data).hexdigest()
