"""An S3 for tests: moto in a process of its own, and a layer of our own that refuses, delays and counts.

``POST /_trouble {"refuse": share of requests, "seconds": before each answer, "seed": n}`` sets it, ``GET /_calls``
counts requests by method, how many were refused, and the bytes of pieces of objects that were served.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from router.checkpoints.arrow_store import ArrowStore, open_arrow_store
from tests.support.service import in_process

SLOW_DOWN = (
    b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>'
)
REGIONS = {"east": "us-east-1", "west": "us-west-2"}


class Troubled:
    """A WSGI app before another."""

    def __init__(self, app: WSGIApplication) -> None:
        self._app, self._lock = app, threading.Lock()
        self._refuse, self._seconds, self._random = 0.0, 0.0, random.Random(0)
        self._calls: Counter[str] = Counter()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/_trouble":
            said = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
            with self._lock:
                self._refuse, self._seconds = said.get("refuse", 0.0), said.get("seconds", 0.0)
                self._random = random.Random(said.get("seed", 0))
            return _answer(start_response, "200 OK", b"{}")
        if path == "/_calls":
            return _answer(start_response, "200 OK", json.dumps(self._calls).encode())
        with self._lock:
            self._calls[environ["REQUEST_METHOD"]] += 1
            refused = self._random.random() < self._refuse
            self._calls["refused"] += refused
        time.sleep(self._seconds)
        if refused:
            chunked = environ.get("wsgi.input_terminated", False)
            environ["wsgi.input"].read(-1 if chunked else int(environ.get("CONTENT_LENGTH") or 0))
            body = _answer(start_response, "503 Slow Down", SLOW_DOWN)
            return [] if environ["REQUEST_METHOD"] == "HEAD" else body
        answer = self._app(environ, start_response)
        return self._count(answer) if "HTTP_RANGE" in environ else answer

    def _count(self, answer: Iterable[bytes]) -> Iterator[bytes]:
        for piece in answer:
            yield piece
            with self._lock:
                self._calls["served"] += len(piece)


def _answer(start_response: StartResponse, status: str, body: bytes) -> list[bytes]:
    start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


def app() -> WSGIApplication:
    """For :func:`tests.support.service.in_process`."""
    return Troubled(DomainDispatcherApplication(create_backend_app))


@dataclass
class ObjectStore:
    """A running one, with the buckets ``east`` and ``west``."""

    url: str

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to reach it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_REGION": "us-east-1",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    @property
    def client(self) -> Any:
        """boto3's, which knows nothing of us."""
        words = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
        return boto3.client("s3", "us-east-1", endpoint_url=self.url, **words)

    def open(self, url: str) -> ArrowStore:
        """A place in it; the environment has to be set."""
        return open_arrow_store(url, self.environment)

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """What lies there, but for empty marks of folders."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [row["Key"] for page in pages for row in page.get("Contents", []) if not row["Key"].endswith("/")]

    def fetched(self, bucket: str, prefix: str, folder: Path) -> Path:
        """All of it as files, by boto3."""
        for key in self.keys(bucket, f"{prefix}/"):
            file = folder / key[len(prefix) + 1 :]
            file.parent.mkdir(parents=True, exist_ok=True)
            self.client.download_file(bucket, key, str(file))
        folder.mkdir(exist_ok=True)
        return folder

    def trouble(self, **what: Any) -> None:
        request = urllib.request.Request(f"{self.url}/_trouble", json.dumps(what).encode(), method="POST")
        urllib.request.urlopen(request, timeout=10).close()

    def calls(self) -> Mapping[str, int]:
        with urllib.request.urlopen(f"{self.url}/_calls", timeout=10) as answer:
            found: dict[str, int] = json.loads(answer.read())
            return found


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """While the block runs."""
    with in_process("tests.support.object_store:app", {}) as url:
        store = ObjectStore(url)
        for name, region in REGIONS.items():
            place = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
            store.client.create_bucket(Bucket=f"bucket-{name}", **place)
        yield store
