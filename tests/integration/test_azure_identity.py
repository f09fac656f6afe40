"""Azure's own credential chain and the SDK's bearer policy over TLS; no secret comes out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import pytest
from azure.core.credentials import AccessToken
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from werkzeug.serving import make_server

from pricing.book_file import embedded_book
from providers.azure.provider import AzureProvider
from providers.caller import Caller
from providers.errors import AccountNotUsedError, CredentialsError, NotReachedError, SdkMissingError
from providers.protocol import Scope
from providers.session import Session, Settings
from tests.support.azure_service import SUBSCRIPTION, make_app
from tests.support.service import CALL_LIMIT_S, QuietHandler, closed_port, in_thread

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
EASTUS = Scope("azure", "eastus")
SECRET = "canary-of-a-client-secret"
TOKEN = "canary-of-a-token"


def service(**options: Any) -> WSGIApplication:
    return make_app(regions=["eastus"], price_rows=10, sku_rows=30, **options)


def session(**settings: Any) -> Session:
    chosen = {"options": {"subscription": SUBSCRIPTION}, "regions": ("eastus",), **settings}
    return Session(Settings(**chosen), embedded_book(), NOW, Caller("azure", CALL_LIMIT_S, attempts=2))


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """A certificate for this machine, good for an hour of the true time, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    begin = datetime.now(UTC) - timedelta(minutes=5)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "key.pem").write_bytes(secret)
    return str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")


@contextmanager
def with_tls(app: WSGIApplication, certificate: tuple[str, str]) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, app, request_handler=QuietHandler, ssl_context=certificate)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(5)
        server.server_close()


class Tokens:
    """A credential that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        assert scopes == ("https://management.azure.com/.default",)
        self.asked += 1
        return AccessToken(TOKEN, 4102444800)


def test_the_sdk_signs_calls_over_tls(certificate: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certificate[0])
    heard: list[str] = []
    app, tokens = service(), Tokens()

    def listening(environ: WSGIEnvironment, start: StartResponse) -> Any:
        heard.append(environ.get("HTTP_AUTHORIZATION", ""))
        return app({**environ, "HTTP_HOST": environ["HTTP_HOST"]}, start)

    with with_tls(listening, certificate) as url:
        provider = AzureProvider("azure", session(endpoints={"prices": url, "management": url}), tokens)
        harvest = provider.fetch(EASTUS, None)
        provider.fetch(EASTUS, None)
    assert {o.zone for o in harvest.offers} == {"1", "2", "3"}
    assert set(heard) == {"", f"Bearer {TOKEN}"}, "prices without the token, the account with it"
    assert tokens.asked == 1


def test_an_unknown_certificate_is_not_trusted(certificate: tuple[str, str]) -> None:
    with with_tls(service(), certificate) as url:
        provider = AzureProvider("azure", session(endpoints={"prices": url, "management": url}), Tokens())
        with pytest.raises(NotReachedError):
            provider.fetch(EASTUS, None)


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment in which Azure's chain has only the command line to ask, and there is none."""
    for name in ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_AUTHORITY_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "AzureCliCredential")
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("nobody")
def test_nobody_in_the_chain_is_a_gap_and_asked_once(capfd: pytest.CaptureFixture[str]) -> None:
    with in_thread(service()) as url:
        elsewhere = f"https://127.0.0.1:{closed_port()}"
        provider = AzureProvider("azure", session(endpoints={"prices": url, "management": elsewhere}))
        harvest = provider.fetch(EASTUS, None)
        diagnosis = provider.diagnose()
    error = next(gap.error for gap in harvest.gaps if gap.subject.startswith("zones"))
    assert isinstance(error, CredentialsError)
    assert "az login" in error.remedy
    assert harvest.offers
    assert diagnosis.identity is None
    assert isinstance(diagnosis.identity_error, CredentialsError)
    assert capfd.readouterr() == ("", ""), "the SDK prints nothing of its own"


def test_a_secret_of_the_environment_comes_out_nowhere(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    monkeypatch.setenv("AZURE_TENANT_ID", "11111111-1111-1111-1111-111111111111")
    monkeypatch.setenv("AZURE_CLIENT_ID", "22222222-2222-2222-2222-222222222222")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", SECRET)
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.delenv("https_proxy", raising=False)
    with in_thread(service()) as url:
        elsewhere = f"https://127.0.0.1:{closed_port()}"
        provider = AzureProvider("azure", session(endpoints={"prices": url, "management": elsewhere}))
        harvest, diagnosis = provider.fetch(EASTUS, None), provider.diagnose()
    errors = [gap.error for gap in harvest.gaps] + [check.error for check in diagnosis.checks if check.error]
    assert {type(error) for error in errors} >= {CredentialsError}
    said = repr((harvest, diagnosis)) + "".join(f"{error!s}{vars(error)}" for error in errors)
    assert SECRET not in said + "".join(capfd.readouterr())
    assert diagnosis.identity is None


def test_credentials_that_are_switched_off_are_left_alone() -> None:
    tokens = Tokens()
    with in_thread(service()) as url:
        endpoints = {"prices": url, "management": url}
        provider = AzureProvider("azure", session(endpoints=endpoints, credentials=False), tokens)
        (gap, *_) = provider.fetch(EASTUS, None).gaps
        assert provider.diagnose().identity_error is None, "nobody was to be found"
    assert type(gap.error) is AccountNotUsedError
    assert tokens.asked == 0


def test_a_missing_sdk_still_gives_public_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "azure.mgmt.core", None)
    with in_thread(service()) as url:
        endpoints = {"prices": url, "management": url}
        provider = AzureProvider("azure", session(endpoints=endpoints))
        harvest = provider.fetch(EASTUS, None)
    error = next(gap.error for gap in harvest.gaps if gap.subject.startswith("zones"))
    assert type(error) is SdkMissingError
    assert error.remedy == "pip install 'stepfare[azure]'"
    assert harvest.offers
