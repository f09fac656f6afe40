"""Runs the command of a recording again: no network, the clouds' answers come from the file.

    python -m tests.smoke.replay FILE

Requests are known by method, path, query and body, without host, signature and moments. A request that was not
recorded is answered with 599, and named.
"""

from __future__ import annotations

import io
import json
import re
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import urllib3
from urllib3.connectionpool import HTTPConnectionPool

from tests.smoke.recorder import SCOPE, asked_headers
from tests.smoke.secrets import Concealer

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d(?::|%3A)\d\d(?:(?::|%3A)\d\d(?:\.\d+)?)?(?:Z|(?:\+|%2B)00(?::|%3A)?00)?")
_TOKENS = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
Key = tuple[str, str, str, str]


class Answers:
    """The answers of one recording, each given once in order, the last of a kind for ever."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.missing: list[str] = []
        self._concealer = Concealer()
        self._lock = threading.Lock()
        self._kept: dict[Key, deque[Mapping[str, Any]]] = defaultdict(deque)
        for one in document["interactions"]:
            asked = one["request"]
            scope = asked["headers"].get(SCOPE, [""])[0]
            self._kept[_key(asked["method"], asked["uri"], asked["body"], scope)].append(one)

    def find(self, method: str, url: str, body: Any, headers: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Return the exchange that a request repeats; None, and a line in ``missing``, where there is none."""
        sent = body.decode("utf-8", "replace") if isinstance(body, bytes) else body if isinstance(body, str) else ""
        scope = asked_headers(headers).get(SCOPE, [""])[0]
        key = _key(method, self._concealer.conceal(url), self._concealer.conceal(sent), scope)
        with self._lock:
            found = self._kept.get(key)
            if not found:
                self.missing.append(" ".join(part for part in key if part))
                return None
            return found.popleft() if len(found) > 1 else found[0]


def _key(method: str, url: str, body: str, scope: str) -> Key:
    parts = urlsplit(url)
    address = f"{parts.path}?{parts.query}" if parts.query else parts.path
    plain = [_TOKENS.sub("ID", _MOMENT.sub("MOMENT", text)) for text in (address, body)]
    return method, plain[0], plain[1], scope


@contextmanager
def replaying(answers: Answers) -> Iterator[None]:
    """Answer every exchange through urllib3 while the block runs."""
    original = HTTPConnectionPool.urlopen

    def urlopen(
        pool: HTTPConnectionPool, method: str, url: str, body: Any = None, headers: Any = None, **more: Any
    ) -> Any:
        here = f"{pool.scheme}://{pool.host}:{pool.port}"
        address = url if url.startswith("http") else f"{here}{url}"
        found = answers.find(method, address, body, headers or {})
        if found is None:
            return urllib3.HTTPResponse(io.BytesIO(), status=599, preload_content=False)
        answer, there = found["response"], urlsplit(found["request"]["uri"])
        text = answer["body"]["string"]
        # Links to further pages lead to where the first was asked.
        for origin in (f"{there.scheme}://{there.netloc}", f"{there.scheme}://{there.hostname}"):
            text = text.replace(origin, here)
        return urllib3.HTTPResponse(
            body=io.BytesIO(text.encode()),
            headers={name: values[0] for name, values in answer["headers"].items()},
            status=answer["status"]["code"],
            reason=answer["status"]["message"],
            preload_content=more.get("preload_content", True),
            request_method=method,
        )

    HTTPConnectionPool.urlopen = urlopen  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        HTTPConnectionPool.urlopen = original  # type: ignore[method-assign]


def words_of(document: Mapping[str, Any]) -> list[str]:
    """Return the words of the command, with the moment of the recording where it takes one."""
    words = [str(word) for word in document["command"]["words"]]
    dated = words[:2] == ["prices", "refresh"] and "--now" not in words
    return [*words, "--now", str(document["command"]["began"])] if dated else words


def main() -> int:
    from router.cli.main import main as stepfare

    document = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answers, code = Answers(document), 0
    sys.argv = ["stepfare", *words_of(document)]
    try:
        with replaying(answers):
            stepfare()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    for line in sorted(set(answers.missing)):
        print(f"not recorded: {line[:300]}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
