"""Sign people in by OpenID Connect: authorization code with PKCE, state and nonce; groups become grants.

Nothing is fetched but the configured issuer's discovery document, and the addresses that it names on hosts that the
deploy file allows. State, nonce and verifier are derived from a secret in the browser's own cookie, so that no server
keeps anything between the two steps.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from router.access.identity import Identity, parse_grants
from router.console.sign_in.sign_in import ProviderUnavailableError, SignInRefusedError, derive_value, is_equal
from router.deploy.console_settings import OidcEntry

# Signatures by a key pair: with a shared secret, or none, anybody could sign.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_SECONDS = 10.0
_LARGEST_ANSWER = 1 << 20
_KEPT = timedelta(hours=1)
# Keys are asked for anew when a token names an unknown one, but not more often than this.
_KEYS_ANEW = timedelta(minutes=1)
# Clocks of provider and console differ by so many seconds at most.
_LEEWAY = 60
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class _Provider:
    """The discovery document as far as it matters, when it was read, and the keys with the time of their reading."""

    authorization_url: str
    token_url: str
    keys_url: str
    read_at: datetime
    keys: KeySet
    keys_read_at: datetime


@dataclass(slots=True)
class OidcClient:
    """The console as a client of one identity provider."""

    entry: OidcEntry
    secret: str | None
    clock: Callable[[], datetime]
    _provider: _Provider | None = field(default=None)

    async def authorization_url(self, secret: str, redirect_url: str) -> str:
        """Return the provider's URL to send a browser to whose cookie has this secret. ProviderUnavailableError."""
        provider = await self._discover()
        async with self._session(redirect_url) as session:
            url, _ = session.create_authorization_url(
                provider.authorization_url,
                state=derive_value(secret, "state"),
                nonce=derive_value(secret, "nonce"),
                code_verifier=derive_value(secret, "verifier"),
            )
        return str(url)

    async def identify(self, secret: str, parameters: Mapping[str, str], redirect_url: str) -> Identity:
        """Return who signed in, by the parameters that the provider sent the browser back with.

        SignInRefusedError, ProviderUnavailableError.
        """
        if not secret or not is_equal(parameters.get("state", ""), derive_value(secret, "state")):
            raise SignInRefusedError("This answer belongs to no sign-in that began in this browser.")
        if parameters.get("iss", self.entry.issuer) != self.entry.issuer:
            raise SignInRefusedError("This answer comes from another provider.")
        if "error" in parameters or not parameters.get("code"):
            raise SignInRefusedError("The provider did not sign you in.")
        provider = await self._discover()
        answer = await self._redeem(provider, parameters["code"], derive_value(secret, "verifier"), redirect_url)
        claims = await self._verified_claims(provider, str(answer.get("id_token", "")), derive_value(secret, "nonce"))
        return self._identity_of(claims)

    def _session(self, redirect_url: str) -> AsyncOAuth2Client:
        return AsyncOAuth2Client(
            self.entry.client_id,
            self.secret,
            scope=" ".join(self.entry.scopes),
            redirect_uri=redirect_url,
            code_challenge_method="S256",
            token_endpoint_auth_method=None if self.secret else "none",
            timeout=_SECONDS,
            follow_redirects=False,
            trust_env=False,
        )

    async def _redeem(self, provider: _Provider, code: str, verifier: str, redirect_url: str) -> Mapping[str, Any]:
        try:
            async with self._session(redirect_url) as session:
                answer = await session.fetch_token(
                    provider.token_url, grant_type="authorization_code", code=code, code_verifier=verifier
                )
        except httpx.HTTPError:
            raise ProviderUnavailableError("the provider does not answer") from None
        except (AuthlibBaseError, ValueError):
            raise SignInRefusedError("The provider did not accept the sign-in.") from None
        if not isinstance(answer, Mapping):
            raise SignInRefusedError("The provider did not accept the sign-in.")
        return answer

    async def _verified_claims(self, provider: _Provider, token: str, nonce: str) -> Mapping[str, Any]:
        """Return the claims of an ID token. SignInRefusedError unless its signature and every claim hold."""
        try:
            try:
                decoded = jwt.decode(token, provider.keys, algorithms=_ALGORITHMS)
            except InvalidKeyIdError:
                decoded = jwt.decode(token, (await self._renew_keys(provider)).keys, algorithms=_ALGORITHMS)
            claims = CodeIDToken(
                decoded.claims,
                decoded.header,
                {
                    "iss": {"essential": True, "value": self.entry.issuer},
                    "aud": {"essential": True, "value": self.entry.client_id},
                },
                {"nonce": nonce, "client_id": self.entry.client_id},
            )
            claims.validate(int(self.clock().timestamp()), _LEEWAY)
        except (JoseError, ValueError, TypeError):
            raise SignInRefusedError("The provider's answer is not valid, or no longer.") from None
        return dict(claims)

    def _identity_of(self, claims: Mapping[str, Any]) -> Identity:
        listed = claims.get(self.entry.groups_claim, ())
        groups = [listed] if isinstance(listed, str) else listed if isinstance(listed, list) else []
        texts = [grant for group in groups if isinstance(group, str) for grant in self.entry.grants.get(group, ())]
        if not texts:
            raise SignInRefusedError("None of your groups has a role here.")
        return Identity(self._name_of(claims), parse_grants(texts))

    def _name_of(self, claims: Mapping[str, Any]) -> str:
        name = claims.get(self.entry.name_claim)
        if self.entry.name_claim == "email" and claims.get("email_verified") is not True:
            name = None
        name = name if isinstance(name, str) and name.strip() else str(claims["sub"])
        if len(name) > _LONGEST_NAME or any(unicodedata.category(each)[0] == "C" for each in name):
            raise SignInRefusedError("Your name at the provider cannot be shown.")
        return name.strip()

    async def _discover(self) -> _Provider:
        now = self.clock()
        if self._provider is not None and now - self._provider.read_at < _KEPT:
            return self._provider
        document = await self._fetch(f"{self.entry.issuer.rstrip('/')}/.well-known/openid-configuration")
        if document.get("issuer") != self.entry.issuer:
            raise ProviderUnavailableError("the discovery document is of another issuer")
        authorization, token, keys = (
            self._endpoint(document, name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")
        )
        self._provider = _Provider(authorization, token, keys, now, await self._fetch_keys(keys), now)
        return self._provider

    async def _renew_keys(self, provider: _Provider) -> _Provider:
        now = self.clock()
        if now - provider.keys_read_at < _KEYS_ANEW:
            return provider
        self._provider = replace(provider, keys=await self._fetch_keys(provider.keys_url), keys_read_at=now)
        return self._provider

    def _endpoint(self, document: Mapping[str, Any], name: str) -> str:
        """Return a URL of the discovery document. ProviderUnavailableError unless its host is an allowed one."""
        url = document.get(name)
        own = urlsplit(self.entry.issuer)
        try:
            parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
            is_own = (parts.scheme, parts.netloc) == (own.scheme, own.netloc)
            is_allowed = parts.scheme == "https" and parts.port in (None, 443) and parts.hostname in self.entry.hosts
        except ValueError:
            is_own = is_allowed = False
        if not isinstance(url, str) or not (is_own or is_allowed):
            raise ProviderUnavailableError(f"{name} of the provider is on a host that console.oidc.hosts does not list")
        return url

    async def _fetch_keys(self, url: str) -> KeySet:
        document = await self._fetch(url)
        try:
            return KeySet.import_key_set(document)  # type: ignore[arg-type]
        except (JoseError, ValueError, TypeError, KeyError):
            raise ProviderUnavailableError("the provider's keys cannot be read") from None

    async def _fetch(self, url: str) -> dict[str, Any]:
        """Return the JSON object at a URL, without following redirects. ProviderUnavailableError."""
        content = bytearray()
        try:
            async with (
                httpx.AsyncClient(timeout=_SECONDS, follow_redirects=False, trust_env=False) as client,
                client.stream("GET", url, headers={"Accept": "application/json"}) as answer,
            ):
                if answer.status_code != httpx.codes.OK:
                    raise ProviderUnavailableError(f"the provider answers with status {answer.status_code}")
                async for piece in answer.aiter_bytes():
                    content += piece
                    if len(content) > _LARGEST_ANSWER:
                        raise ProviderUnavailableError("the provider's answer is too long")
            document = httpx.Response(200, content=bytes(content)).json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError):
            raise ProviderUnavailableError("the provider does not answer") from None
        if not isinstance(document, dict):
            raise ProviderUnavailableError("the provider's answer is no JSON object")
        return document
