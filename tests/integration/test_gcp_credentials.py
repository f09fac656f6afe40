"""Google's own credentials chain, run for real: a key file, a token service on this machine, and no secret shown."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from werkzeug.wrappers import Request, Response

from providers.errors import AccountNotUsedError, CredentialsError, NotReachedError, ProviderError
from providers.gcp.provider import GcpProvider
from tests.support.gcp_service import make_app, provider_at, serving
from tests.support.service import closed_port, in_thread

CANARY = "ya29.CANARY-token-0123456789"
# Where google-auth keeps what it read from NO_GCE_CHECK, GCE_METADATA_HOST and GCE_METADATA_IP when it was imported.
METADATA = "google.auth.compute_engine._metadata"
MakeKey = Callable[[str], Path]


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No login of this machine's user, and no question whether this is a Google machine."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    monkeypatch.setattr(f"{METADATA}._NO_GCE_CHECK", True)


@pytest.fixture
def key_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MakeKey:
    """Writes a service account's key file whose tokens come from the given address, and names it in the environment."""

    def write(token_uri: str) -> Path:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
        account = {
            "type": "service_account",
            "project_id": "key-project",
            "private_key_id": "CANARY-key-id",
            "private_key": pem,
            "client_email": "reader@key-project.iam.gserviceaccount.com",
            "token_uri": token_uri,
        }
        file = tmp_path / "key.json"
        file.write_text(json.dumps(account), encoding="utf-8")
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        return file

    return write


def tokens(status: int, body: dict[str, Any]) -> Any:
    @Request.application
    def app(request: Request) -> Response:
        return Response(json.dumps(body), status, mimetype="application/json")

    return app


def at_google(**options: str) -> GcpProvider:
    """A provider that must identify itself: its endpoints take https, and nobody answers there."""
    url = f"https://127.0.0.1:{closed_port()}"
    return provider_at(url, attempts=1, options=options)


def shown(error: BaseException) -> str:
    return repr(error) + str(error) + getattr(error, "remedy", "") + "".join(traceback.format_exception(error))


def test_without_an_account_it_says_what_to_do() -> None:
    provider = at_google(project="p")
    with pytest.raises(CredentialsError) as raised:
        provider.scopes()
    assert "gcloud auth application-default login" in raised.value.remedy
    assert "stepfare prices import" in raised.value.remedy
    assert provider.diagnose().identity is None


def test_credentials_that_are_not_to_be_used_are_not() -> None:
    with serving() as (provider, app):
        url = provider._session.settings.endpoints["compute"]
        public = provider_at(url, credentials=False)
        with pytest.raises(AccountNotUsedError):
            public.scopes()
        assert app.seen == []


def test_a_project_must_be_known() -> None:
    with in_thread(make_app(regions=1)) as url, pytest.raises(CredentialsError, match="project") as raised:
        provider_at(url, options={}).scopes()
    assert "option `project`" in raised.value.remedy


def test_the_account_and_its_project_are_told(key_file: MakeKey) -> None:
    with in_thread(tokens(200, {"access_token": CANARY, "expires_in": 3600})) as url:
        key_file(f"{url}/token")
        provider = at_google()
        diagnosis = provider.diagnose()
        assert diagnosis.identity == "reader@key-project.iam.gserviceaccount.com, project key-project"
        # A token was given and Google cannot be reached: neither the token nor the key shows anywhere.
        errors = [check.error for check in diagnosis.checks]
        assert all(isinstance(error, NotReachedError) for error in errors)
        for error in errors:
            assert error is not None
            assert "CANARY" not in shown(error)
            assert "PRIVATE KEY" not in shown(error)
        assert "CANARY" not in repr(diagnosis)


def test_an_option_goes_before_the_keys_project(key_file: MakeKey) -> None:
    key_file("http://127.0.0.1:1/token")
    diagnosis = at_google(project="another").diagnose()
    assert diagnosis.identity is not None
    assert diagnosis.identity.endswith("project another")


def of_prices(provider: GcpProvider) -> ProviderError | None:
    """How the catalogue was reached: its tokens come from the token service. (Compute Engine's client signs its own
    with a service account's key and asks nobody.)"""
    return next(check.error for check in provider.diagnose().checks if check.needed_for == "prices")


def test_a_revoked_key_is_a_credentials_error(key_file: MakeKey) -> None:
    body = {"error": "invalid_grant", "error_description": f"Invalid JWT Signature {CANARY}"}
    with in_thread(tokens(400, body)) as url:
        key_file(f"{url}/token")
        error = of_prices(at_google())
    assert isinstance(error, CredentialsError)
    assert error.code == "invalid_grant"
    assert "CANARY" not in shown(error)


def test_a_spoilt_key_file_is_a_credentials_error(key_file: MakeKey) -> None:
    file = key_file("http://127.0.0.1:1/token")
    file.write_text('{"type": "service_account", "private_key": "CANARY', encoding="utf-8")
    with pytest.raises(CredentialsError) as raised:
        at_google().scopes()
    assert "CANARY" not in shown(raised.value)


def test_a_token_service_that_is_gone_is_no_wrong_key(key_file: MakeKey) -> None:
    key_file(f"http://127.0.0.1:{closed_port()}/token")
    assert isinstance(of_prices(at_google()), NotReachedError)


def test_a_google_machine_identifies_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata service: the last link of the chain."""

    @Request.application
    def metadata(request: Request) -> Response:
        answers = {
            "/computeMetadata/v1/project/project-id": "metadata-project",
            "/computeMetadata/v1/universe/universe-domain": "googleapis.com",
            "/computeMetadata/v1/instance/service-accounts/default/": json.dumps(
                {"email": "vm@metadata-project.iam.gserviceaccount.com", "scopes": [], "aliases": ["default"]}
            ),
        }
        token = json.dumps({"access_token": CANARY, "expires_in": 3600, "token_type": "Bearer"})
        body = token if request.path.endswith("/token") else answers.get(request.path, "")
        kind = "application/json" if body.startswith("{") else "application/text"
        return Response(body, content_type=kind, headers={"Metadata-Flavor": "Google"})

    with in_thread(metadata) as url:
        monkeypatch.setattr(f"{METADATA}._NO_GCE_CHECK", False)
        for name in ("_GCE_METADATA_HOST", "_GCE_DEFAULT_MDS_IP"):
            monkeypatch.setattr(f"{METADATA}.{name}", url.removeprefix("http://"))
        provider = at_google()
        with pytest.raises(NotReachedError) as raised:
            provider.scopes()
        assert provider._client.get().identity.project == "metadata-project"
        assert "CANARY" not in shown(raised.value)


def test_no_tls_on_the_other_side_is_not_reached(key_file: MakeKey) -> None:
    with in_thread(tokens(200, {"access_token": CANARY, "expires_in": 3600})) as url:
        key_file(f"{url}/token")
        provider = provider_at(url.replace("http://", "https://"), attempts=1)
        with pytest.raises(NotReachedError) as raised:
            provider.scopes()
        assert "CANARY" not in shown(raised.value)


def test_a_foreign_http_endpoint_is_refused_before_anything_is_sent(key_file: MakeKey) -> None:
    key_file("http://127.0.0.1:1/token")
    with pytest.raises(ProviderError, match="https"):
        provider_at("http://compute.example.com").scopes()
