"""Runs a command of stepfare and keeps what the clouds answered it, without secrets: `--record` of the smoke run.

    python -m tests.smoke.recorder FOLDER doctor --cloud aws -o json

Each command gets a file in FOLDER: its words, how it ended, and its HTTP exchanges, in the form of VCR.py's cassettes
in JSON, with a key ``command`` beside them. Calls of the three SDKs go through urllib3, which is where they are seen;
what Terraform's providers call is not. Where tokens are made, nothing is kept at all.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import urllib3
from urllib3.connectionpool import HTTPConnectionPool

from tests.smoke.secrets import Concealer

VERSION = 1
#: Headers that a replay needs; no other is kept.
_ASKED = ("content-type", "x-amz-target")
_ANSWERED = ("content-type", "date", "retry-after", "x-amzn-errortype", "x-amzn-query-error", "last-modified")
#: Places at which identities are turned into tokens.
_OF_TOKENS = re.compile(
    r"login\.|oauth2|sts\.googleapis|iamcredentials|identitytoolkit|sso|oidc|portal\.|169\.254\.|metadata\.|fd00:ec2"
)
_TOKEN_ACTIONS = re.compile(r"Action=(AssumeRole\w*|GetSessionToken|GetFederationToken)|/oauth2/|/token(\?|$)")
# The accounts themselves: once seen, they are replaced wherever they stand, in what the command printed too.
_ACCOUNTS = (
    (re.compile(r"/projects/([a-z][a-z0-9.:-]{4,28}[a-z0-9])(?=/|\?|$)"), "project-0"),
    (re.compile(r"<Account>(\d{12})<|\barn:aws[\w-]*:[\w-]*:[\w-]*:(\d{12})\b"), "000000000000"),
    (re.compile(r"/subscriptions/([0-9a-f-]{36})\b", re.IGNORECASE), "REMOVED-GUID"),
)
# Of a signature only this is kept: on one address it tells regions and services apart.
_SCOPE = re.compile(r"Credential=[^/]+/\d{8}/([^/]+/[^/]+)/aws4_request")
SCOPE = "x-smoke-scope"
_LARGEST = 4 * 2**20


class SecretLeftError(Exception):
    """A recording would have held a secret; it was not written."""


class Recording:
    """The exchanges of one command. ``concealer`` learns the names of accounts as they are seen."""

    def __init__(self, concealer: Concealer) -> None:
        self.concealer = concealer
        self.interactions: list[dict[str, Any]] = []
        self.left_out = 0
        self._lock = threading.Lock()

    def add(self, method: str, url: str, asked: Mapping[str, str], body: Any, answer: Any, content: bytes) -> None:
        """Keep one exchange, unless it is about tokens, or too large."""
        sent = body.decode("utf-8", "replace") if isinstance(body, bytes) else body if isinstance(body, str) else ""
        text = content.decode("utf-8", "replace")
        parts = urlsplit(url)
        is_secret = _OF_TOKENS.search(parts.netloc) or _TOKEN_ACTIONS.search(sent) or _TOKEN_ACTIONS.search(parts.path)
        with self._lock:
            if is_secret or len(content) > _LARGEST:
                self.left_out += 1
                return
            seen = f"{parts.path} {sent} {text}"
            for pattern, word in _ACCOUNTS:
                names = (name for match in pattern.finditer(seen) for name in match.groups() if name)
                self.concealer.known.update(dict.fromkeys(set(names) - {word}, word))
            self.interactions.append(
                {
                    "request": {"method": method, "uri": url, "body": sent, "headers": asked_headers(asked)},
                    "response": {
                        "status": {"code": answer.status, "message": answer.reason or ""},
                        "headers": _kept(answer.headers, _ANSWERED),
                        "body": {"string": text},
                    },
                }
            )

    def text(self, command: Mapping[str, Any]) -> str:
        """Return the file's text, without secrets. SecretLeftError if one is in it all the same."""
        whole = {
            "version": VERSION,
            "command": command,
            "left_out": self.left_out,
            "interactions": self.interactions,
        }
        # Each text by itself: an escaped quotation mark must not hide the end of a value.
        text = json.dumps(_concealed(whole, self.concealer), indent=1, ensure_ascii=False) + "\n"
        if left := self.concealer.found_in(text):
            raise SecretLeftError(f"{len(left)} known secrets stand in the recording; it is not written")
        return text


def asked_headers(headers: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return what is kept of a request's headers."""
    signed = _kept(headers, ("authorization",)).get("authorization", [""])[0]
    scope = _SCOPE.search(signed)
    return {**_kept(headers, _ASKED), **({SCOPE: [scope[1]]} if scope else {})}


def _kept(headers: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, list[str]]:
    found = {str(name).lower(): value for name, value in headers.items()}
    return {
        name: [value.decode() if isinstance(value, bytes) else str(value)]
        for name in names
        if (value := found.get(name)) is not None
    }


def _concealed(value: Any, concealer: Concealer) -> Any:
    if isinstance(value, str):
        return concealer.conceal(value)
    if isinstance(value, list):
        return [_concealed(one, concealer) for one in value]
    return {name: _concealed(one, concealer) for name, one in value.items()} if isinstance(value, dict) else value


@contextmanager
def recording(into: Recording) -> Iterator[None]:
    """See every exchange through urllib3 while the block runs."""
    original = HTTPConnectionPool.urlopen

    def urlopen(
        pool: HTTPConnectionPool, method: str, url: str, body: Any = None, headers: Any = None, **more: Any
    ) -> Any:
        answer = original(pool, method, url, body, headers, **more)
        raw = answer.read(decode_content=False) if not more.get("preload_content", True) else answer.data
        # Another answer with the same bytes: the first can be read once.
        again = _again(answer, raw, decode=False, preload=more.get("preload_content", True))
        content = _again(answer, raw, decode=True, preload=True).data if raw else b""
        address = url if url.startswith("http") else f"{pool.scheme}://{pool.host}:{pool.port}{url}"
        into.add(method, address, headers or {}, body, answer, content)
        return again

    HTTPConnectionPool.urlopen = urlopen  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        HTTPConnectionPool.urlopen = original  # type: ignore[method-assign]


def _again(answer: Any, raw: bytes, *, decode: bool, preload: bool) -> urllib3.HTTPResponse:
    return urllib3.HTTPResponse(
        body=io.BytesIO(raw),
        headers=answer.headers,
        status=answer.status,
        reason=answer.reason,
        version=answer.version,
        preload_content=preload,
        decode_content=decode,
        request_method=getattr(answer, "_request_method", None),
    )


def main() -> int:
    """Run the command, write its recording, and return its exit code."""
    folder, words = Path(sys.argv[1]), sys.argv[2:]
    from router.cli.main import main as stepfare

    kept, out, began, code = Recording(Concealer.of_environment(os.environ)), io.StringIO(), datetime.now(UTC), 0
    sys.argv = ["stepfare", *words]
    try:
        with recording(kept), redirect_stdout(out):
            stepfare()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.stdout.write(out.getvalue())
    command = {"words": words, "began": began.isoformat(), "code": code, "out": out.getvalue()}
    if kept.interactions:
        number = len(list(folder.glob("*.json"))) + 1
        name = "-".join(word for word in words[:3] if word.isalpha())
        try:
            (folder / f"{number:02}-{name}.json").write_text(kept.text(command), encoding="utf-8")
        except SecretLeftError as error:
            print(f"not recorded: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
