"""Signing in by OpenID Connect against a provider that answers over HTTP, rightly and wrongly."""

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
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from fastapi.testclient import TestClient
from joserfc import jwt
from joserfc.jwk import RSAKey

from router.deploy.console_settings import OidcEntry
from router.state.access_tokens import TokenKind
from tests.support.console import NIGHT
from tests.support.console_access import PAGE, SignInConsole, csrf_of, sign_in_console

CLIENT_ID, CLIENT_SECRET = "stepfare-console", "a-canary-of-the-client"
CODE = "code-1"
_KEY = RSAKey.generate_key(2048, {"kid": "one"})


def new_key(kid: str) -> RSAKey:
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


MOMENT = int(NIGHT.timestamp())


@pytest.fixture
def issuer() -> Iterator[FakeIssuer]:
    with serving_issuer(MOMENT) as served:
        yield served


@pytest.fixture
def console(tmp_path: Path, issuer: FakeIssuer) -> Iterator[SignInConsole]:
    grants: Any = {"speech": ["job_owner:speech", "viewer"], "finance": ["finance"]}
    entry = OidcEntry(issuer=issuer.url, client_id=CLIENT_ID, client_secret="env:SECRET", grants=grants)
    with sign_in_console(tmp_path, oidc=(entry, CLIENT_SECRET), failures="1000/minute") as opened:
        yield opened


def begin(client: TestClient, issuer: FakeIssuer, target: str = "/jobs") -> dict[str, str]:
    """Begin to sign in; return the parameters that the provider leads the browser back with."""
    left = client.get("/login/oidc", params={"next": target})
    assert left.status_code == 303
    assert "SameSite=lax" in left.headers["Set-Cookie"]
    assert "HttpOnly" in left.headers["Set-Cookie"]
    return issuer.authorize(left.headers["Location"])


def refusal(console: SignInConsole, issuer: FakeIssuer) -> str:
    """Return the text of the page after a sign-in that is refused; nobody is signed in by it."""
    client = console.client()
    back = client.get("/login/oidc/callback", params=begin(client, issuer), headers=PAGE)
    assert back.status_code == 401
    assert "stepfare_session" not in back.headers.get("Set-Cookie", "")
    assert client.get("/tonight").status_code == 401
    return back.text


def test_groups_of_the_provider_become_grants(console: SignInConsole, issuer: FakeIssuer) -> None:
    client = console.client()
    assert 'href="/login/oidc?next=/jobs"' in client.get("/login?next=/jobs").text
    parameters = begin(client, issuer)
    assert issuer.authorized["redirect_uri"] == "http://127.0.0.1:8321/login/oidc/callback"
    assert issuer.authorized["scope"] == "openid email profile"
    back = client.get("/login/oidc/callback", params=parameters)
    assert back.status_code == 200
    assert 'content="0; url=/jobs"' in back.text
    session = next(line for line in back.headers.get_list("Set-Cookie") if "stepfare_session" in line)
    assert "SameSite=strict" in session
    sent = client.post("/deed", data={"csrf_token": csrf_of(client)})
    assert sent.json()["who"] == "ana@example.com"
    found = console.context.store.access_tokens.find(client.cookies["stepfare_session"], TokenKind.SESSION, NIGHT)
    assert found is not None
    assert found.grants == ("job_owner:speech", "viewer")
    # The provider's keys are read once for many sign-ins.
    other = console.client()
    assert other.get("/login/oidc/callback", params=begin(other, issuer)).status_code == 200
    assert issuer.requests.count("/keys") == 1


WRONG_CLAIMS: tuple[dict[str, Any], ...] = (
    {"nonce": "another"},
    {"nonce": None},
    {"aud": "another-client"},
    {"aud": ["another-client", "a-third"]},
    {"aud": [CLIENT_ID, "another-client"]},
    {"azp": "another-client"},
    {"iss": "https://evil.example"},
    {"exp": MOMENT - 61},
    {"exp": None},
    {"iat": MOMENT + 3600},
    {"nbf": MOMENT + 3600},
    {"sub": None},
    {"exp": "soon"},
)


def test_an_id_token_with_a_wrong_claim_signs_nobody_in(console: SignInConsole, issuer: FakeIssuer) -> None:
    for claims in WRONG_CLAIMS:
        issuer.claims = claims
        assert "not valid, or no longer" in refusal(console, issuer), claims


def test_a_signature_by_another_key_signs_nobody_in(console: SignInConsole, issuer: FakeIssuer) -> None:
    issuer.signing_key = new_key("one")
    assert "not valid, or no longer" in refusal(console, issuer)
    # The public key taken for a shared secret, which everybody knows.
    issuer.shared_secret = issuer.public_keys[0].as_pem(private=False)
    assert "not valid, or no longer" in refusal(console, issuer)
    issuer.shared_secret = b""
    assert "not valid, or no longer" in refusal(console, issuer)


def test_keys_are_read_again_when_the_provider_has_a_new_one(console: SignInConsole, issuer: FakeIssuer) -> None:
    client = console.client()
    assert client.get("/login/oidc/callback", params=begin(client, issuer)).status_code == 200
    issuer.signing_key = new_key("two")
    issuer.key_id = "two"
    assert refusal(console, issuer)
    issuer.public_keys.append(issuer.signing_key)
    assert refusal(console, issuer)  # Not more often than once a minute.
    console.clock.move(minutes=1)
    assert client.get("/login/oidc/callback", params=begin(client, issuer)).status_code == 200
    assert issuer.requests.count("/keys") == 2


def test_whoever_is_in_no_known_group_is_refused(console: SignInConsole, issuer: FakeIssuer) -> None:
    wrong: tuple[Any, ...] = (None, [], ["cooks"], "cooks", {"speech": True}, [1, None], "spee")
    for groups in wrong:
        issuer.claims = {"groups": groups}
        assert "None of your groups has a role here." in refusal(console, issuer), groups


def test_an_address_that_nobody_verified_names_nobody(console: SignInConsole, issuer: FakeIssuer) -> None:
    for verified in (False, None, "true"):
        issuer.claims = {"email_verified": verified, "email": "boss@example.com"}
        client = console.client()
        assert client.get("/login/oidc/callback", params=begin(client, issuer)).status_code == 200
        assert client.post("/deed", data={"csrf_token": csrf_of(client)}).json()["who"] == "u-17"
    issuer.claims = {"email": "ana\u202e@example.com"}
    assert "cannot be shown" in refusal(console, issuer)


def test_an_answer_counts_only_in_the_browser_that_asked(console: SignInConsole, issuer: FakeIssuer) -> None:
    attacker, victim = console.client(), console.client()
    parameters = begin(attacker, issuer)
    # Without a cookie, with that of another sign-in, and with a changed state.
    assert victim.get("/login/oidc/callback", params=parameters).status_code == 401
    begin(victim, issuer)
    assert victim.get("/login/oidc/callback", params=parameters).status_code == 401
    assert attacker.get("/login/oidc/callback", params={**parameters, "state": "x"}).status_code == 401
    assert attacker.get("/login/oidc/callback", params={"code": "code-1"}).status_code == 401
    assert issuer.requests.count("/token") == 0


def test_other_answers_of_the_provider_sign_nobody_in(console: SignInConsole, issuer: FakeIssuer) -> None:
    client = console.client()
    parameters = begin(client, issuer)
    for changed in (
        {"error": "access_denied", "error_description": "<script>"},
        {"code": "another"},
        {"code": ""},
        {"iss": "https://evil.example"},
    ):
        back = client.get("/login/oidc/callback", params={**parameters, **changed}, headers=PAGE)
        assert back.status_code == 401
        assert "<script>" not in back.text
    # A scanner that asks by HEAD does not use the code up.
    before = issuer.requests.count("/token")
    assert client.head("/login/oidc/callback", params=parameters).status_code == 200
    assert issuer.requests.count("/token") == before


WRONG_DOCUMENTS: tuple[dict[str, Any], ...] = (
    {"issuer": "https://evil.example"},
    {"jwks_uri": "https://evil.example/keys"},
    {"jwks_uri": "http://169.254.169.254/latest/meta-data"},
    {"token_endpoint": "file:///etc/passwd"},
    {"token_endpoint": None},
    {"authorization_endpoint": "//evil.example"},
    {"jwks_uri": "https://[/"},
)


def test_only_the_issuer_is_asked(console: SignInConsole, issuer: FakeIssuer) -> None:
    for document in WRONG_DOCUMENTS:
        issuer.document = document
        assert console.client().get("/login/oidc").status_code == 503, document
    assert set(issuer.requests) == {"/.well-known/openid-configuration"}


def test_a_provider_that_does_not_answer_is_told(tmp_path: Path) -> None:
    entry = OidcEntry(issuer="http://127.0.0.1:9", client_id=CLIENT_ID, grants={"speech": ("viewer",)})
    with sign_in_console(tmp_path, oidc=(entry, "")) as console:
        refused = console.client().get("/login/oidc")
        assert refused.status_code == 503
        assert "does not answer" in refused.json()["error"]["message"]


def test_the_secret_of_the_client_stays_between_console_and_provider(
    console: SignInConsole, issuer: FakeIssuer
) -> None:
    client = console.client()
    left = client.get("/login/oidc")
    back = client.get("/login/oidc/callback", params=issuer.authorize(left.headers["Location"]))
    for answer in (left, back):
        assert CLIENT_SECRET not in f"{answer.headers}{answer.text}"
    assert CLIENT_SECRET not in repr(issuer.authorized)
