"""Brings the job's code onto the machine, in a process of its own, so that it is stopped, logged and reported as the
training is. Nothing of a URL but its host and path is ever said: the rest may be a signature."""

from __future__ import annotations

import hashlib
import http.client
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

from router.agent.config import Code, Config

TRIES = 5


class NoCode(Exception):  # noqa: N818
    """The code is not to be had; the message may be shown."""


class _Failed(NoCode):
    """A command started and did not succeed: it may another time."""


def fetch(config: Config) -> None:
    """Puts the code into the working folder; an image is pulled. Raises :class:`NoCode`. Doing it again is harmless."""
    code, folder = config.code, Path(config.workdir)
    if code.kind == "archive":
        _archive(code, folder)
    elif code.kind == "git":
        _git(code, folder)
    elif code.kind == "image":
        _several_times(["docker", "pull", "--quiet", code.source], folder)


def _archive(code: Code, folder: Path) -> None:
    said = shown(code.source)
    with tempfile.TemporaryDirectory(prefix=".stepfare-", dir=folder) as scratch:
        file = Path(scratch) / "archive"
        found = _downloaded(code.source, file, said)
        if found != code.version:
            raise NoCode(f"{said}: SHA-256 is {found}, not {code.version}")
        unpack(file, folder, said)


def _downloaded(url: str, file: Path, said: str) -> str:
    problem = ""
    for attempt in range(TRIES):
        if attempt:
            time.sleep(0.25 * 2**attempt)
        try:
            return _download(url, file)
        except urllib.error.HTTPError as error:
            error.close()
            problem = f"HTTP {error.code}"
            if error.code < 500 and error.code not in (408, 429):
                break
        except urllib.error.URLError as error:
            problem = str(error.reason)
        except (OSError, http.client.HTTPException) as error:
            problem = f"{type(error).__name__}: {error}"
    raise NoCode(f"{said}: {problem}")


def _download(url: str, file: Path) -> str:
    """The SHA-256 of what was written to the file."""
    digest = hashlib.sha256()
    with urllib.request.urlopen(url, timeout=60) as answer, file.open("wb") as out:
        while data := answer.read(2**20):
            digest.update(data)
            out.write(data)
    return digest.hexdigest()


def unpack(file: Path, folder: Path, said: str) -> None:
    """An archive, zip or tar of any compression, into the folder; NoCode, beginning with ``said``, for any other file,
    and for one of which anything leads outside."""
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as zipped:
                zipped.extractall(folder)
            return
        with tarfile.open(file) as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(folder, filter="data")
            else:  # before 3.11.4, the one of Debian 12 among them
                _extract(tar, folder)
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError, ValueError) as error:
        raise NoCode(f"{said}: cannot be unpacked: {error}") from None


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """As the filter "data" does: nothing goes outside, by its name or by a link, and nothing is a device."""
    root = folder.resolve()
    for member in tar:
        place = root / member.name
        leads = [place]
        if member.issym():
            leads.append(place.parent / member.linkname)
        elif member.islnk():
            leads.append(root / member.linkname)
        elif not (member.isreg() or member.isdir()):
            raise ValueError(f"{member.name} is no file, folder or link")
        if any(root != there and root not in there.parents for there in (lead.resolve() for lead in leads)):
            raise ValueError(f"{member.name} leads outside")
        member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
        member.mode = 0o755 if member.isdir() else member.mode & 0o755 | 0o600
        tar.extract(member, folder)


def _git(code: Code, folder: Path) -> None:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}  # noqa: TID251  (a process of its own: its edge)
    if not (folder / ".git").exists():
        _run(["git", "init", "--quiet"], folder, environment)
    _several_times(["git", "fetch", "--quiet", "--depth=1", "--", code.source, code.version], folder, environment)
    _run(["git", "checkout", "--quiet", "--force", "--detach", "FETCH_HEAD"], folder, environment)


def _several_times(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    for wait in (2.0, 4.0):
        try:
            _run(command, folder, environment)
            return
        except _Failed:
            time.sleep(wait)
    _run(command, folder, environment)


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    try:
        ended = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, check=False)
    except OSError as error:
        raise NoCode(f"{command[0]}: {error.strerror}") from None
    if ended.returncode:
        raise _Failed(f"{' '.join(command[:2])} ended with {ended.returncode}")


def shown(url: str) -> str:
    """The URL without what may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def main(config: Config) -> int:
    """The process; 0 or 1."""
    try:
        fetch(config)
    except NoCode as error:
        sys.stderr.write(f"stepfare: {error}\n")
        return 1
    return 0
