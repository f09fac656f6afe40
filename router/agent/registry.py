"""Log in to the registry of the job's image: by the job's own secret, else by the identity of the machine.

Each start of a job asks for a new token, so none is renewed. Sources: Amazon ECR API reference, GetAuthorizationToken;
Google Cloud, "Set up authentication for Docker"; Microsoft, "Azure Container Registry: AAD integration" (the exchange
of a token), all read 2026-11-30.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from router.agent.imds import OK, MetadataClient, NoticeSourceError

TIMEOUT, LARGEST_ANSWER = 10.0, 2**20
DOCKER_HUB = "docker.io"
# The key of Docker Hub in Docker's configuration is not its host.
_HUB_KEY = "https://index.docker.io/v1/"
# The variables of the job that hold its login; the second names are those that SkyPilot gives them (0.14).
USERNAMES = ("STEPFARE_REGISTRY_USERNAME", "SKYPILOT_DOCKER_USERNAME")
PASSWORDS = ("STEPFARE_REGISTRY_PASSWORD", "SKYPILOT_DOCKER_PASSWORD")
SERVERS = ("STEPFARE_REGISTRY_SERVER", "SKYPILOT_DOCKER_SERVER")
# The training does not need them: they are not passed into its container.
VARIABLES = frozenset({*USERNAMES, *PASSWORDS, *SERVERS})

Post = Callable[[str, Mapping[str, str], bytes], bytes]


@dataclass(frozen=True)
class RegistryLogin:
    """A user's name and password at a registry."""

    server: str
    username: str
    password: str = field(repr=False)

    def write(self, folder: Path) -> None:
        """Write them as Docker's configuration into a folder, for this user alone."""
        auth = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        file = folder / "config.json"
        file.touch(mode=0o600)
        file.write_text(json.dumps({"auths": {self.server: {"auth": auth}}}), encoding="ascii")


def registry_of(image: str) -> str:
    """Return the host of an image's registry, with its port; Docker Hub's where the name has none."""
    first, slash, _ = image.partition("/")
    return first if slash and (first == "localhost" or re.search("[.:]", first)) else DOCKER_HUB


@dataclass(frozen=True)
class RegistryServices:
    """The services that know the machine's identity: its metadata, and how to post to a registry or its cloud.

    ``now``: seconds since 1970, for signatures.
    """

    metadata: MetadataClient
    now: float
    post: Post


def find_login(image: str, environment: Mapping[str, str], services: RegistryServices | None) -> RegistryLogin | None:
    """Return the login for an image's registry; None where the job states none and the machine's identity has none.

    ``services``: None on a machine without metadata. Raises :class:`NoticeSourceError` if one of them refuses.
    """
    host = registry_of(image)
    stated = _stated_login(host, environment)
    if stated is not None or services is None:
        return stated
    for pattern, login in _LOGINS:
        found = pattern.fullmatch(host)
        if found:
            return login(found, services)
    return None


def _stated_login(host: str, environment: Mapping[str, str]) -> RegistryLogin | None:
    for username, password, server in zip(USERNAMES, PASSWORDS, SERVERS):  # noqa: B905  (strict is 3.10)
        if environment.get(username) and environment.get(password):
            key = environment.get(server) or (_HUB_KEY if host == DOCKER_HUB else host)
            return RegistryLogin(key, environment[username], environment[password])
    return None


def _ecr_login(host: re.Match[str], services: RegistryServices) -> RegistryLogin:
    session = _ask(services, "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, method="PUT")
    path, token = "/latest/meta-data/iam/security-credentials/", {"X-aws-ec2-metadata-token": session}
    role = _ask(services, path, token).split()[0]
    keys = _decode(path, _ask(services, f"{path}{quote(role)}", token))
    endpoint = f"api.ecr.{host['region']}.{host['suffix']}"
    target = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"
    content = {"content-type": "application/x-amz-json-1.1", "x-amz-target": target}
    headers = signed_headers(endpoint, host["region"], b"{}", keys, content, services.now)
    answer = _decode(endpoint, services.post(f"https://{endpoint}/", headers, b"{}"))
    try:
        pair = base64.b64decode(answer["authorizationData"][0]["authorizationToken"], validate=True).decode()
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise NoticeSourceError(f"{endpoint}: {type(error).__name__} in its answer") from None
    username, _, password = pair.partition(":")
    return RegistryLogin(host[0], username, password)


def _artifact_registry_login(host: re.Match[str], services: RegistryServices) -> RegistryLogin:
    path = "/computeMetadata/v1/instance/service-accounts/default/token"
    token = _decode(path, _ask(services, path, {"Metadata-Flavor": "Google"}))
    return RegistryLogin(host[0], "oauth2accesstoken", _word(path, token, "access_token"))


def _acr_login(host: re.Match[str], services: RegistryServices) -> RegistryLogin:
    resource = quote("https://management.azure.com/", safe="")
    path = f"/metadata/identity/oauth2/token?api-version=2018-02-01&resource={resource}"
    token = _word(path, _decode(path, _ask(services, path, {"Metadata": "true"})), "access_token")
    form = {"grant_type": "access_token", "service": host[0], "access_token": token}
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = _decode(host[0], services.post(f"https://{host[0]}/oauth2/exchange", headers, urlencode(form).encode()))
    return RegistryLogin(host[0], "00000000-0000-0000-0000-000000000000", _word(host[0], answer, "refresh_token"))


_LOGINS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], RegistryServices], RegistryLogin]], ...] = (
    (re.compile(r"\d{12}\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.(?P<suffix>amazonaws\.com(?:\.cn)?)"), _ecr_login),
    (re.compile(r"(?:[a-z0-9-]+-docker\.pkg\.dev|(?:[a-z]+\.)?gcr\.io)"), _artifact_registry_login),
    (re.compile(r"[a-z0-9-]+\.azurecr\.(?:io|cn|us)"), _acr_login),
)


def signed_headers(
    host: str, region: str, body: bytes, keys: Mapping[str, Any], headers: Mapping[str, str], now: float
) -> dict[str, str]:
    """Return the headers of a POST to ``https://host/`` of ECR with their signature of version 4.

    Source: AWS, "Create a signed AWS API request". ``keys`` are a role's, as the metadata service gives them.
    """
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    scope = f"{moment[:8]}/{region}/ecr/aws4_request"
    signed = {**headers, "host": host, "x-amz-date": moment, "x-amz-security-token": _word(host, keys, "Token")}
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    request = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{_word(host, keys, 'SecretAccessKey')}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    credential = f"AWS4-HMAC-SHA256 Credential={_word(host, keys, 'AccessKeyId')}/{scope}"
    return {**signed, "authorization": f"{credential}, SignedHeaders={names}, Signature={key.hex()}"}


def _ask(services: RegistryServices, path: str, headers: Mapping[str, str], *, method: str = "GET") -> str:
    answer = services.metadata.ask(path, headers, method=method)
    if answer.status != OK or not answer.text.strip():
        raise NoticeSourceError(f"{path.partition('?')[0]}: HTTP {answer.status}, the machine has no identity")
    return answer.text


def _decode(place: str, text: str | bytes) -> Mapping[str, Any]:
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise NoticeSourceError(f"{place.partition('?')[0]}: not a JSON object")
    return content


def _word(place: str, content: Mapping[str, Any], key: str) -> str:
    if not isinstance(content.get(key), str) or not content[key].isprintable():
        raise NoticeSourceError(f"{place.partition('?')[0]}: no {key}")
    return str(content[key])


def post_request(url: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Send a POST and return the body of its answer. Raises :class:`NoticeSourceError`."""
    request = urllib.request.Request(url, body, dict(headers), method="POST")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            content: bytes = answer.read(LARGEST_ANSWER)
            return content
    except urllib.error.HTTPError as error:
        error.close()
        raise NoticeSourceError(f"{request.host}: HTTP {error.code}, the machine's identity may not read it") from None
    except OSError as error:
        raise NoticeSourceError(f"{request.host}: {getattr(error, 'reason', error)}") from None
