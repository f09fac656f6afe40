"""A Google Cloud Storage for tests: gcp-storage-emulator in a process of its own, answering many calls at once.

Its own server answers one call after the other and waits for ever where Arrow reads an object in two streams.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import ThreadingHTTPServer
from typing import Any

from gcp_storage_emulator.handlers import buckets
from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage

BUCKET = "bucket-1"


class _Memory(Storage):  # type: ignore[misc]  # published without types
    """One that keeps everything in memory, uploads as one growing piece, and no description of it on a disk."""

    def _write_config_to_file(self) -> None:
        """Nothing: it would be all objects as JSON after each upload."""

    def add_to_resumable_upload(
        self, file_id: str, content: bytes, total_size: int | None = None, expected_start: int | None = None
    ) -> bytes | None:
        """The emulator's own copies all that came before with each piece."""
        path = self._object_path("_resumable", self.safe_id(file_id))
        grown = self._store._files.setdefault(path, bytearray())
        if expected_start is not None and expected_start != len(grown):
            raise ValueError(f"{expected_start} does not follow {len(grown)}")
        grown += content or b""
        return None if total_size is None or len(grown) < total_size else bytes(grown)


class _Handler(RequestHandler):  # type: ignore[misc]  # published without types
    protocol_version = "HTTP/1.1"
    # A client that has read enough goes away.
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that has read enough goes away."""


def _serve(ready: Any) -> None:
    storage = _Memory(use_memory_fs=True)
    buckets.create_bucket(BUCKET, storage)
    server = _Server(("127.0.0.1", 0), partial(_Handler, storage))
    ready.send(server.server_port)
    server.serve_forever()


@contextmanager
def gcs_emulator() -> Iterator[int]:
    """The port of one with a bucket, while the block runs."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        if not ours.poll(60):
            raise RuntimeError("the emulator did not start")
        yield int(ours.recv())
    finally:
        process.terminate()
        process.join(5)


def gcs_url(port: int, path: str) -> str:
    """The URL of a folder of the bucket, as Arrow reads it."""
    return f"gs://anonymous@{BUCKET}/{path}?scheme=http&endpoint_override=127.0.0.1%3A{port}"
