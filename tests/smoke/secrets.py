"""Remove from an exchange with a cloud everything secret; words stand in its place."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, quote_plus

_NAMES = re.compile(r"key|token|secret|passw|credential|connection_string|sas", re.IGNORECASE)
# Of variables with such names, those that say where something is, or how it is done.
_HARMLESS = re.compile(r"_(file|path|dir|url|uri|profile|region)$|^(SSH_AUTH_SOCK|GPG_|XDG_)", re.IGNORECASE)
_SHORTEST = 8

_GUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_FIELDS = (
    r"access_?token|refresh_?token|id_?token|session_?token|security_?token|secret_?access_?key|access_?key_?id|"
    r"client_?secret|private_?key|password|signature|authorization|user_?data|custom_?data|api_?key|identity"
)
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL), "REMOVED-KEY"),
    (re.compile(r"eyJ[\w-]{8,}\.[\w-]+\.[\w-]*"), "REMOVED-TOKEN"),
    (re.compile(r"\bya29\.[\w.-]+"), "REMOVED-TOKEN"),
    (re.compile(r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}\b"), "REMOVED-KEY-ID"),
    # As JSON, XML and form; values that are lists or objects are left.
    (re.compile(rf'("(?:\w*)(?:{_FIELDS})"\s*:\s*)"(?:[^"\\]|\\.)*"', re.IGNORECASE), r'\1"REMOVED"'),
    # The same inside a text that is itself quoted.
    (re.compile(rf'(\\+"\w*(?:{_FIELDS})\\+"\s*:\s*\\+")(?:(?!\\+").)*', re.IGNORECASE), r"\1REMOVED"),
    (re.compile(rf"(<(\w*(?:{_FIELDS}))>)[^<]*(</\2>)", re.IGNORECASE), r"\1REMOVED\3"),
    (
        re.compile(rf"((?:^|[?&])(?:X-Amz-)?(?:{_FIELDS}|credential|sig|key|assertion)=)[^&\s]*", re.IGNORECASE),
        r"\1REMOVED",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.+/=~-]{6,}"), r"\1 REMOVED"),
    # Who one is.
    (re.compile(r"(arn:aws[\w-]*:[\w-]*:[\w-]*:)\d{12}\b"), r"\g<1>000000000000"),
    (re.compile(r"(:(?:user|assumed-role)/)[\w+=,.@/-]+"), r"\1REMOVED"),
    (re.compile(r"(<(?:ownerId|OwnerId|Account|accountId|requesterId)>)\d{12}<"), r"\g<1>000000000000<"),
    (re.compile(r'("(?:\w*[aA]ccount(?:_?[iI]d)?|OwnerId)"\s*:\s*)"\d{12}"'), r'\1"000000000000"'),
    (re.compile(r"(sqs\.[\w.-]+/)\d{12}/"), r"\g<1>000000000000/"),
    (re.compile(rf"(?i)((?:subscriptions|tenants?|tenantid)(?:/|%2F|\"\s*:\s*\")){_GUID}"), r"\g<1>REMOVED-GUID"),
    (re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"), "removed@example.invalid"),
)


@dataclass
class Concealer:
    """Replaces secrets and names of accounts. ``known``: values and the words for them, replaced in every encoding."""

    known: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_environment(cls, environment: Mapping[str, str], accounts: Mapping[str, str] | None = None) -> Concealer:
        """Return one that knows the secrets of an environment; ``accounts`` are more words and what replaces them."""
        home = os.path.expanduser("~")  # noqa: PTH111
        secrets = {
            value: "REMOVED"
            for name, value in environment.items()
            if _NAMES.search(name)
            and not _HARMLESS.search(name)
            and len(value) >= _SHORTEST
            and not value.startswith(home)
        }
        return cls({**secrets, **(accounts or {})})

    def conceal(self, text: str) -> str:
        """Return the text without what is known to be secret, and without what looks like it."""
        for value, word in self._encoded():
            text = text.replace(value, word)
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return text

    def found_in(self, text: str) -> list[str]:
        """Return the words of the known values that stand in the text all the same."""
        return sorted({word for value, word in self._encoded() if value in text})

    def _encoded(self) -> list[tuple[str, str]]:
        found: dict[str, str] = {}
        for value, word in self.known.items():
            whole = base64.b64encode(value.encode()).decode()
            for form in (value, quote(value, safe=""), quote_plus(value), whole, whole.rstrip("=")):
                found[form] = word
        return sorted(found.items(), key=lambda pair: -len(pair[0]))
