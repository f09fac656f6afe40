"""Object stores through pyarrow: S3 and compatible ones, Google Cloud Storage, Azure Blob."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from router.checkpoints.object_store import CheckpointStore, ListedFile, StorageError, StoreReader, StoreSink

SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss")
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
# A part that makes no progress for this long is sent again; the first is also the limit for an answer.
_SILENT_SECONDS, _CONNECT_SECONDS = 20.0, 5.0
# Tries of one request, with pauses that double from 50 ms, because a store that throttles should be asked less.
_TRIES = 9
# From this many files on, one listing is quicker than asking for each.
_LISTING_THRESHOLD = 4
# Arrow sends an S3 object in parts of 10 MiB, of which there may be 10,000.
_LARGEST_S3_FILE = 10_000 * 10 * 2**20
S3_WORDS = {"region", "endpoint_override", "scheme"}


def open_arrow_store(url: str, environment: Mapping[str, str]) -> ArrowStore:
    """Open the checkpoint store at a URL of :data:`SCHEMES`.

    Credentials are the cloud's usual ones, from environment, files or machine. StorageError for a URL of another kind,
    one that holds a secret or names an unknown bucket.
    """
    parts = urlsplit(url)
    root = f"{parts.netloc.rpartition('@')[2]}/{parts.path.strip('/')}".rstrip("/")
    if parts.scheme not in SCHEMES or not parts.netloc:
        raise StorageError(f"{parts.scheme}:// is no place for checkpoints", f"use one of {', '.join(SCHEMES)}, file")
    shown = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    named = parts.scheme.startswith("abfs") or parts.username == "anonymous"
    if parts.password is not None or (parts.username is not None and not named):
        raise StorageError("the URL holds credentials", "give them in the environment: a URL is shown to people")
    try:
        if parts.scheme == "s3":
            return ArrowStore(
                _open_s3(parts.netloc, dict(parse_qsl(parts.query)), environment), root, shown, _LARGEST_S3_FILE
            )
        from pyarrow.fs import FileSystem

        system, path = FileSystem.from_uri(url)
        return ArrowStore(system, path.rstrip("/"), shown, None)
    except (OSError, ValueError) as error:
        raise StorageError(f"{shown}: cannot be opened: {error}") from None


def _open_s3(bucket: str, words: dict[str, str], environment: Mapping[str, str]) -> Any:
    from pyarrow.fs import AwsDefaultS3RetryStrategy, S3FileSystem, resolve_s3_region

    if unknown := set(words) - S3_WORDS:
        raise ValueError(f"{', '.join(sorted(unknown))}: unknown; known are {', '.join(sorted(S3_WORDS))}")
    endpoint = words.get("endpoint_override") or next((e for name in ENDPOINTS if (e := environment.get(name))), "")
    scheme, mark, address = endpoint.partition("://")
    region = words.get("region") or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if not endpoint:
        # Arrow does not follow the redirect that answers a request to the wrong region.
        region = words.get("region") or resolve_s3_region(bucket)
    return S3FileSystem(
        region=region or "us-east-1",
        endpoint_override=(address if mark else endpoint) or None,
        scheme=words.get("scheme") or (scheme if mark else "https"),
        request_timeout=_SILENT_SECONDS,
        connect_timeout=_CONNECT_SECONDS,
        allow_delayed_open=True,
        retry_strategy=AwsDefaultS3RetryStrategy(max_attempts=_TRIES),
    )


class ArrowStore(CheckpointStore):
    """An object store as a store.

    An object exists once all of it does, but one whose writing failed half-way may exist cut short: sizes and digests
    show that.
    """

    def __init__(self, system: Any, root: str, url: str, largest_file: int | None) -> None:
        self.url, self.largest_file = url, largest_file
        self._system, self._root = system, root

    def names(self) -> list[str]:
        return [info.base_name for info in self._list_infos("", deep=False) if info.is_file]

    def folders(self) -> list[str]:
        # Some clouds do not list folders, which are only the beginnings of names.
        inside = (
            info.path[len(self._root) + 1 :].partition("/") for info in self._list_infos("", deep=True) if info.is_file
        )
        return sorted({name for name, slash, _ in inside if slash})

    def files(self) -> list[ListedFile]:
        found = (info for info in self._list_infos("", deep=True) if info.is_file)
        files = (ListedFile(info.path[len(self._root) + 1 :], info.size, info.mtime_ns or 0) for info in found)
        return sorted(files, key=lambda file: file.path)

    def sizes(self, paths: Sequence[str]) -> list[int | None]:
        if not paths:
            return []
        folders = {path.partition("/")[0] for path in paths}
        if len(paths) >= _LISTING_THRESHOLD * len(folders) and all("/" in path for path in paths):
            found = [info for folder in folders for info in self._list_infos(folder, deep=True)]
        else:
            found = self._system.get_file_info([self._full_path(path) for path in paths])
        sizes: dict[str, int] = {info.path: info.size for info in found if info.is_file}
        return [sizes.get(self._full_path(path)) for path in paths]

    def read(self, path: str, max_bytes: int) -> bytes:
        with self._system.open_input_file(self._full_path(path)) as file:
            data: bytes = file.read(max_bytes)
            return data

    @contextmanager
    def open(self, path: str) -> Iterator[StoreReader]:
        with self._system.open_input_file(self._full_path(path)) as file:
            yield file

    @contextmanager
    def create(self, path: str) -> Iterator[StoreSink]:
        stream = self._system.open_output_stream(self._full_path(path))
        try:
            # Arrow sends parts in the background and would take more data meanwhile, without bound, if nobody flushed.
            yield stream
        except BaseException:
            # Otherwise the garbage collector would close it, in the middle of something else.
            with suppress(OSError):
                stream.close()
            raise
        stream.close()

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._system.delete_file(self._full_path(path))

    def remove_below(self, folder: str, kept: frozenset[str]) -> None:
        files = self._list_below(folder)
        if files and kept.isdisjoint(path[len(self._root) + 1 :] for path in files):
            try:
                self._system.delete_dir(self._full_path(folder))
                return
            except FileNotFoundError:
                # Google has no object for the folder itself, and Arrow fails without it.
                files = self._list_below(folder)
        for path in files:
            if path[len(self._root) + 1 :] not in kept:
                self._system.delete_file(path)

    def _list_below(self, folder: str) -> list[str]:
        return [info.path for info in self._list_infos(folder, deep=True) if info.is_file]

    def where(self, path: str) -> str:
        return f"{self.url}/{path}"

    def _full_path(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _list_infos(self, folder: str, *, deep: bool) -> list[Any]:
        from pyarrow.fs import FileSelector

        selector = FileSelector(self._full_path(folder), recursive=deep, allow_not_found=True)
        infos: list[Any] = self._system.get_file_info(selector)
        return infos
