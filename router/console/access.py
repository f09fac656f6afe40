"""Put together how a console is reached, and by whom, from the deploy file; refuse what would let anybody in."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import replace

from pricing.problems import InvalidInputError
from router.access.identity import Grant, Identity, Role
from router.app.queries.context import QueryContext
from router.console.answers import AnswerCache
from router.console.sign_in.sign_in import SignIn, make_link
from router.console.site import ConsoleAccess, ConsoleSite, RateLimits
from router.deploy.console_settings import ConsoleEntry, OidcEntry, resolve_secret

# Everybody on this machine, where that was asked for.
OPEN_VISITOR = Identity("visitor", (Grant(Role.VIEWER),))
_REMEDY = "see docs/console.md: console.tokens or console.oidc, and console.certificate or console.behind_proxy"


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches that address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_exposure(entry: ConsoleEntry, host: str, *, open_access: bool) -> None:
    """Raise InvalidInputError where others than people of this machine would get in without signing in over https."""
    is_public = not is_loopback(host) or entry.behind_proxy
    if not is_public:
        return
    where = f"{host} is reached by others" if not is_loopback(host) else "a proxy leads others here"
    if open_access:
        raise _refusal(where, "everybody would get in", "--open-access", "leave it out: it is for loopback alone")
    if not entry.has_identity:
        raise _refusal(where, "nobody could be told apart", "console", _REMEDY)
    if not entry.is_secure:
        raise _refusal(where, "tokens would travel in the clear", "console", _REMEDY)


def check_certificate(entry: ConsoleEntry) -> None:
    """Raise InvalidInputError where the certificate or its key cannot be used."""
    if entry.certificate is None or entry.key is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(entry.certificate, entry.key, _no_password)
    except (OSError, ValueError) as error:
        reason = "do not belong together, or are no PEM files" if isinstance(error, ssl.SSLError) else str(error)
        raise InvalidInputError.single(
            f"{entry.certificate} and {entry.key}: {reason}",
            field="console.certificate",
            remedy="name a PEM certificate and its key, without a password",
        ) from None


def open_console(
    context: QueryContext, entry: ConsoleEntry, environment: Mapping[str, str], *, open_access: bool = False
) -> tuple[ConsoleSite, str]:
    """Return the site that the deploy file describes, and the secret of the link that signs the operator in.

    The context is the operator's; the secret is "" where people sign in by themselves, by an identity in the file.
    InvalidInputError for a secret or a library that is missing.
    """
    rates = RateLimits(entry.requests, entry.failed_sign_ins, context.clock)
    access = ConsoleAccess(frozenset(entry.hosts), entry.is_secure, rates)
    if open_access:
        return ConsoleSite(context, lambda _: OPEN_VISITOR, AnswerCache(), access), ""
    takes_tokens = entry.tokens or not entry.has_identity
    sign_in = SignIn(context.store, context.clock, entry.is_secure, takes_tokens)
    site = ConsoleSite(context, sign_in.identify, AnswerCache(), access, sign_in)
    if entry.oidc is not None:
        site = _with_oidc(site, entry.oidc, environment)
    link = "" if entry.has_identity else make_link(context.store, context.identity.name, context.clock())
    return site, link


def _with_oidc(site: ConsoleSite, entry: OidcEntry, environment: Mapping[str, str]) -> ConsoleSite:
    try:
        from router.console.sign_in.oidc import OidcClient
    except ImportError as error:
        raise InvalidInputError.single(
            f"needs a library that is not installed ({error.name})",
            field="console.oidc",
            remedy="pip install 'stepfare[oidc]'",
        ) from None
    reference = entry.client_secret
    secret = None if reference is None else resolve_secret(reference, environment, "console.oidc.client_secret")
    return replace(site, oidc=OidcClient(entry, secret, site.context.clock))


def _no_password() -> str:
    raise ValueError("the key has a password")


def _refusal(where: str, what: str, field: str, remedy: str) -> InvalidInputError:
    return InvalidInputError.single(f"{where}, and {what}", field=field, remedy=remedy)
