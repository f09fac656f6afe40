"""Signing in by OpenID Connect against a provider that answers over HTTP, rightly and wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from router.deploy.console_settings import OidcEntry
from router.state.access_tokens import TokenKind
from tests.support.console import NIGHT
from tests.support.console_access import PAGE, SignInConsole, csrf_of, sign_in_console
from tests.support.oidc_issuer import CLIENT_ID, CLIENT_SECRET, FakeIssuer, new_key, serving_issuer

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
