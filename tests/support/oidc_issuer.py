"""An identity provider on this machine: discovery, keys, and ID tokens signed with RS256, right or wrong as told."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID, CLIENT_SECRET = "stepfare-console", "a-canary-of-the-client"
CODE = "code-1"
_KEY = RSAKey.generate_key(2048, {"kid": "one"})


def new_key(kid: str) -> RSAKey:
    """Return a key pair of that name."""
    return RSAKey.generate_key(2048, {"kid": kid})


@dataclass
class FakeIssuer:
    """The next answer of the provider: ``claims`` replace or, as None, remove those of a good token."""

    url: str = ""
    now: int = 0
    claims: dict[str, Any] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)
    signing_key: RSAKey = field(default_factory=lambda: _KEY)
    key_id: str = "one"
    shared_secret: bytes | None = None
    public_keys: list[RSAKey] = field(default_factory=lambda: [_KEY])
    authorized: dict[str, str] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def authorize(self, url: str) -> dict[str, str]:
        """Take the browser's request to sign in; return the parameters to lead it back with."""
        parts = urlsplit(url)
        self.authorized = dict(parse_qsl(parts.query))
        assert url.startswith(f"{self.url}/authorize?")
        return {"code": CODE, "state": self.authorized["state"]}

    def id_token(self) -> str:
        """Return an ID token with the claims as they are to be."""
        claims: dict[str, Any] = {
            "iss": self.url,
            "aud": CLIENT_ID,
            "sub": "u-17",
            "exp": self.now + 300,
            "iat": self.now,
            "nonce": self.authorized.get("nonce"),
            "email": "ana@example.com",
            "email_verified": True,
            "groups": ["speech"],
            **self.claims,
        }
        kept = {name: value for name, value in claims.items() if value is not None}
        if self.shared_secret is not None:
            return _sign_with_secret(kept, self.shared_secret)
        header = {"alg": "RS256", "kid": self.key_id}
        return jwt.encode(header, kept, self.signing_key, algorithms=["RS256"])

    def answer(self, path: str, form: Mapping[str, list[str]], authorization: str) -> tuple[int, Any]:
        """Return status and document of a request."""
        self.requests.append(path)
        if path == "/.well-known/openid-configuration":
            return 200, {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
                **self.document,
            }
        if path == "/keys":
            return 200, {"keys": [key.as_dict(private=False) for key in self.public_keys]}
        if path == "/token" and self._is_good(form, authorization):
            return 200, {"access_token": "an-access-token", "token_type": "Bearer", "id_token": self.id_token()}
        return 400, {"error": "invalid_grant"}

    def _is_good(self, form: Mapping[str, list[str]], authorization: str) -> bool:
        """Check code, redirect, PKCE and the client's secret, as a provider does."""
        digest = hashlib.sha256(form["code_verifier"][0].encode()).digest()
        client = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        return (
            form["code"] == [CODE]
            and form["redirect_uri"] == [self.authorized["redirect_uri"]]
            and self.authorized["code_challenge_method"] == "S256"
            and _encoded(digest) == self.authorized["code_challenge"]
            and authorization == f"Basic {client}"
        )


def _sign_with_secret(claims: Mapping[str, Any], secret: bytes) -> str:
    """Return a token signed with HS256, or unsigned for an empty secret; libraries make neither with such keys."""
    header = {"alg": "HS256" if secret else "none", "kid": "one"}
    parts = [_encoded(json.dumps(part).encode()) for part in (header, claims)]
    signature = hmac.digest(secret, ".".join(parts).encode(), "sha256") if secret else b""
    return ".".join([*parts, _encoded(signature)])


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


@contextmanager
def serving_issuer(now: int) -> Iterator[FakeIssuer]:
    """Serve a provider whose clock stands at ``now``."""
    issuer = FakeIssuer(now=now)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(*issuer.answer(urlsplit(self.path).path, {}, ""))

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self._say(*issuer.answer(self.path, form, self.headers.get("Authorization", "")))

        def _say(self, status: int, document: Any) -> None:
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
