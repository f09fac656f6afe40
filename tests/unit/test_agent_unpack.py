"""What an archive of code may hold, on interpreters with and without filters for tar (3.11.4 brought them)."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from router.agent.fetch import CodeFetchError, unpack_archive

_FILTERED = hasattr(tarfile, "data_filter")


@pytest.fixture(
    params=[pytest.param(True, marks=pytest.mark.skipif(not _FILTERED, reason="an old interpreter")), False]
)
def filters(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    return bool(request.param)


def _member(name: str, kind: bytes = tarfile.REGTYPE, leads: str = "", **said: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, leads, said.get("mode", 0o644)
    member.uid, member.size = 12345, 2 if kind == tarfile.REGTYPE else 0
    return member


def _archive(place: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(place, "w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"hi") if member.size else None)
    return place


@pytest.mark.parametrize(
    "members",
    [
        (_member("../outside"),),
        (_member("code/../../outside"),),
        (_member("link", tarfile.SYMTYPE, ".."), _member("link/outside")),
        (_member("link", tarfile.SYMTYPE, "/tmp"),),
        (_member("x", tarfile.SYMTYPE, "."), _member("x/x/../outside")),
        (_member("hard", tarfile.LNKTYPE, "../secret"),),
        (_member("device", tarfile.CHRTYPE),),
    ],
    ids=["name", "roundabout", "link", "absolute-link", "link-chain", "hard-link", "device"],
)
def test_nothing_leads_outside(tmp_path: Path, filters: bool, members: tuple[tarfile.TarInfo, ...]) -> None:
    (tmp_path / "secret").write_text("canary")
    folder = tmp_path / "in" / "code"
    folder.mkdir(parents=True)
    with pytest.raises(CodeFetchError, match="said: cannot be unpacked"):
        unpack_archive(_archive(tmp_path / "a.tar", *members), folder, "said")
    assert not list(tmp_path.rglob("outside"))
    assert not [path for path in folder.rglob("*") if path.is_file() and path.read_text() == "canary"]


def test_links_inside_and_modes_are_kept(tmp_path: Path, filters: bool) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    members = (
        _member("lib", tarfile.DIRTYPE, mode=0o555),
        _member("lib/run.sh", mode=0o6775),
        _member("bin", tarfile.DIRTYPE, mode=0o755),
        _member("bin/run", tarfile.SYMTYPE, "../lib/run.sh"),
    )
    unpack_archive(_archive(tmp_path / "a.tar", *members), folder, "said")
    assert (folder / "bin" / "run").read_text() == "hi"
    assert (folder / "lib" / "run.sh").stat().st_mode & 0o7777 == 0o755
    assert (folder / "lib" / "run.sh").stat().st_uid == tmp_path.stat().st_uid
