"""Fetch the job's code onto the machine, in a process of its own.

So it is stopped, logged and reported like the training. Of a URL only the host and path are ever shown: the rest may be
a signature.
"""

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

from router.agent.config import AgentConfig, CodeSource
from router.agent.imds import LINK_LOCAL, MetadataClient, NoticeSourceError
from router.agent.registry import TIMEOUT, RegistryServices, find_login, post_request, registry_of

TRIES = 5


class CodeFetchError(Exception):
    """The code cannot be obtained; the message may be shown."""


class _CommandError(CodeFetchError):
    """A command started and did not succeed; it may succeed another time."""


def fetch_code(config: AgentConfig) -> None:
    """Put the code into the working folder, or pull its image.

    Raises :class:`CodeFetchError`. Repeating it is harmless.
    """
    code, folder = config.code, Path(config.workdir)
    if code.kind == "archive":
        _fetch_archive(code, folder)
    elif code.kind == "git":
        _fetch_repository(code, folder)
    elif code.kind == "image":
        _pull_image(config, folder)


def _pull_image(config: AgentConfig, folder: Path) -> None:
    """Pull the job's image, as who may read it; without a terminal Docker prints a line for each layer."""
    pull = ["pull", config.code.source]
    has_metadata = config.metadata not in ("none", "files")
    metadata = MetadataClient(config.metadata_url or LINK_LOCAL, seconds=TIMEOUT) if has_metadata else None
    services = None if metadata is None else RegistryServices(metadata, time.time(), post_request)  # noqa: TID251
    try:
        login = find_login(config.code.source, os.environ, services)  # noqa: TID251  (a process of its own: its edge)
    except NoticeSourceError as error:
        # The image may be one that everybody may read.
        sys.stderr.write(f"stepfare: no login to {registry_of(config.code.source)}: {error}\n")
        login = None
    if login is None:
        _run_with_retries(["docker", *pull], folder)
        return
    with tempfile.TemporaryDirectory(prefix=".stepfare-", dir=folder) as scratch:
        login.write(Path(scratch))
        _run_with_retries(["docker", "--config", scratch, *pull], folder)


def _fetch_archive(code: CodeSource, folder: Path) -> None:
    shown_url = redact_url(code.source)
    with tempfile.TemporaryDirectory(prefix=".stepfare-", dir=folder) as scratch:
        file = Path(scratch) / "archive"
        found = _download_with_retries(code.source, file, shown_url)
        if found != code.version:
            raise CodeFetchError(f"{shown_url}: SHA-256 is {found}, not {code.version}")
        unpack_archive(file, folder, shown_url)


def _download_with_retries(url: str, file: Path, shown_url: str) -> str:
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
    raise CodeFetchError(f"{shown_url}: {problem}")


def _download(url: str, file: Path) -> str:
    digest = hashlib.sha256()
    with urllib.request.urlopen(url, timeout=60) as answer, file.open("wb") as out:
        while data := answer.read(2**20):
            digest.update(data)
            out.write(data)
    return digest.hexdigest()


def unpack_archive(file: Path, folder: Path, shown_url: str) -> None:
    """Unpack an archive, zip or tar of any compression, into the folder.

    CodeFetchError, beginning with ``shown_url``, for any other file, and for an archive with a member that leads
    outside.
    """
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as zipped:
                zipped.extractall(folder)
            return
        with tarfile.open(file) as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(folder, filter="data")
            else:  # Python before 3.11.4, among them the one of Debian 12.
                _extract(tar, folder)
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError, ValueError) as error:
        raise CodeFetchError(f"{shown_url}: cannot be unpacked: {error}") from None


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """Extract a tar as the filter "data" does: no name or link leads outside, and nothing is a device."""
    root = folder.resolve()
    for member in tar:
        place = root / member.name
        destinations = [place]
        if member.issym():
            destinations.append(place.parent / member.linkname)
        elif member.islnk():
            destinations.append(root / member.linkname)
        elif not (member.isreg() or member.isdir()):
            raise ValueError(f"{member.name} is no file, folder or link")
        if any(
            root != target and root not in target.parents
            for target in (destination.resolve() for destination in destinations)
        ):
            raise ValueError(f"{member.name} leads outside")
        member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
        member.mode = 0o755 if member.isdir() else member.mode & 0o755 | 0o600
        tar.extract(member, folder)


def _fetch_repository(code: CodeSource, folder: Path) -> None:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}  # noqa: TID251  (a process of its own: its edge)
    if not (folder / ".git").exists():
        _run(["git", "init", "--quiet"], folder, environment)
    _run_with_retries(["git", "fetch", "--quiet", "--depth=1", "--", code.source, code.version], folder, environment)
    _run(["git", "checkout", "--quiet", "--force", "--detach", "FETCH_HEAD"], folder, environment)


def _run_with_retries(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    for wait in (2.0, 4.0):
        try:
            _run(command, folder, environment)
            return
        except _CommandError:
            time.sleep(wait)
    _run(command, folder, environment)


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    try:
        ended = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, check=False)
    except OSError as error:
        raise CodeFetchError(f"{command[0]}: {error.strerror}") from None
    if ended.returncode:
        raise _CommandError(f"{' '.join(command[:2])} ended with {ended.returncode}")


def redact_url(url: str) -> str:
    """Return the URL without the parts that may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def main(config: AgentConfig) -> int:
    try:
        fetch_code(config)
    except CodeFetchError as error:
        sys.stderr.write(f"stepfare: {error}\n")
        return 1
    return 0
