"""Manifests as jobs write them, and as they must not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.agent.helper.stepfare_checkpoint import Checkpoints
from router.checkpoints.manifest import CheckpointFile, CheckpointManifest, manifest_name, parse_manifest, parse_step
from tests.support.stored_checkpoints import save

ZERO = "0" * 64


def _said(**changes: Any) -> bytes:
    files = [{"path": "step-00000007/a/x", "bytes": 1, "sha256": ZERO}]
    said = {"version": 1, "step": 7, "attempt": "a", "created": "2026-11-21T18:00:00+00:00", "files": files, **changes}
    return json.dumps(said).encode()


def _file(**changes: Any) -> list[dict[str, Any]]:
    return [{"path": "x", "bytes": 1, "sha256": ZERO, **changes}]


def test_what_the_helper_writes_is_read(tmp_path: Path) -> None:
    good = save(tmp_path, 12)
    manifest = parse_manifest(good.manifest.name, good.manifest.read_bytes())
    assert (manifest.step, manifest.attempt, manifest.bytes) == (12, "a", 3010)
    assert [tmp_path / file.path for file in manifest.files] == list(good.files)
    assert manifest.name == good.manifest.name


def test_names_and_steps() -> None:
    assert manifest_name(7) == "step-00000007.manifest.json"
    assert [parse_step(manifest_name(step)) for step in (0, 10**12)] == [0, 10**12]
    assert {parse_step(name) for name in ("x", "step-7.manifest.json", ".step-00000007.manifest.json", "")} == {None}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"7",
        b"{}",
        b"null",
        b"\xff",
        b"[" * 100_000,
        _said()[:-1],
        _said(version=2),
        _said(step=8),
        _said(step=True),
        _said(attempt=1),
        _said(created=None),
        _said(files=None),
        _said(files=[1]),
        _said(files=_file() * 2),
        *[
            _said(files=_file(path=path))
            for path in (
                "",
                "/x",
                "../x",
                "a/../x",
                "a//x",
                "./x",
                "a\\x",
                "x" * 2000,
                "a\0",
                "step-00000001.manifest.json",
                7,
            )
        ],
        *[_said(files=_file(bytes=size)) for size in (-1, 1.0, True, "1", None)],
        *[_said(files=_file(sha256=text)) for text in ("", "0" * 63, "G" * 64, 7)],
    ],
    ids=lambda text: str(len(text)),
)
def test_what_does_not_keep_to_the_contract_is_none(text: bytes) -> None:
    with pytest.raises(ValueError, match="step-00000007"):
        parse_manifest("step-00000007.manifest.json", text)


KEYS = st.sampled_from(["version", "step", "attempt", "files", "path", "bytes", "sha256"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text()


@given(st.recursive(LEAVES, lambda x: st.lists(x) | st.dictionaries(KEYS, x), max_leaves=30))
def test_no_content_does_anything_else(content: Any) -> None:
    try:
        assert isinstance(
            parse_manifest("step-00000007.manifest.json", json.dumps(content).encode()), CheckpointManifest
        )
    except ValueError:
        return


def test_the_same_checkpoint_elsewhere_is_the_same(tmp_path: Path) -> None:
    name = manifest_name(7)
    one, other = parse_manifest(name, _said()), parse_manifest(name, _said(attempt="b"))
    assert one.is_same(one.beside({"step-00000007/a/x": "1" * 64}))
    assert not one.is_same(other)
    assert one.beside({"step-00000007/a/x": ZERO, "y": ZERO}) is one


def test_content_of_others_is_never_written_over() -> None:
    moved = parse_manifest(manifest_name(7), _said()).beside({"step-00000007/a/x": "1" * 64})
    assert moved.files == (CheckpointFile(f"step-00000007/moved-{'0' * 12}/x", 1, ZERO),)
    assert parse_manifest(manifest_name(7), moved.text) == moved


def test_a_checkpoint_of_files_of_the_job(tmp_path: Path) -> None:
    """Names that the training chose, below the folder."""
    (tmp_path / "last.ckpt").write_bytes(b"1")
    good = Checkpoints(tmp_path, attempt="a").save(3, [tmp_path / "last.ckpt"])
    assert parse_manifest(good.manifest.name, good.manifest.read_bytes()).files[0].path == "last.ckpt"
