"""Registry of clouds, the only list of them, and where each has its credentials.

An adapter, and the SDK behind it, is imported when it is opened.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from providers.errors import SdkMissingError
from providers.session import QUEUE_OPTION

if TYPE_CHECKING:  # Settings name clouds without loading what adapters return.
    from providers.fleet import Fleet
    from providers.notices import NoticeQueue
    from providers.protocol import Provider
    from providers.session import Session


@dataclass(frozen=True, slots=True)
class CredentialFile:
    """A file that may hold credentials.

    ``variable`` names another place for it, or for its folder where ``names_folder``. The file counts where its text
    matches ``pattern``.
    """

    default: str
    variable: str = ""
    names_folder: bool = False
    pattern: str = r"\S"

    def path(self, environment: Mapping[str, str], home: Path) -> Path:
        """Return where the file is, if it exists."""
        named = environment.get(self.variable, "") if self.variable else ""
        if not named:
            return home / self.default
        return Path(named).expanduser() / Path(self.default).name if self.names_folder else Path(named).expanduser()


@dataclass(frozen=True, slots=True)
class CredentialPlaces:
    """The variables (all of a group must be set) and files of one cloud, and what to do where there are none."""

    variables: tuple[tuple[str, ...], ...]
    files: tuple[CredentialFile, ...]
    remedy: str


@dataclass(frozen=True, slots=True)
class CloudRegistration:
    """One cloud of the registry.

    ``title`` is its name for people; ``factory`` the ``module:name`` of what makes its provider of (cloud, session);
    ``extra`` the extra of this package that installs its SDK ("" for none); ``public`` makes the provider of its public
    prices where ``factory`` needs an account ("" where it does not); ``by_default``: it is asked without being
    configured; ``fleet`` makes its fleet ("" where attempts make nothing that could be left there); ``notices`` makes
    its queue of notices; ``sellers`` are names in its bills besides the cloud's name and title;
    ``credential_places`` is where its tools keep credentials (None where none are needed).
    """

    title: str
    factory: str
    extra: str = ""
    public: str = ""
    by_default: bool = True
    fleet: str = ""
    notices: str = ""
    sellers: tuple[str, ...] = ()
    credential_places: CredentialPlaces | None = None


# Places of AWS credentials, in the order of the SDK's chain.
_AWS_CREDENTIALS = CredentialPlaces(
    variables=(
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"),
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI",),
    ),
    files=(
        CredentialFile(
            ".aws/credentials",
            "AWS_SHARED_CREDENTIALS_FILE",
            pattern=r"(?m)^\s*(?:aws_access_key_id|credential_process)",
        ),
        CredentialFile(
            ".aws/config",
            "AWS_CONFIG_FILE",
            pattern=r"(?m)^\s*(?:aws_access_key_id|sso_session|sso_start_url|credential_process|role_arn)\b",
        ),
    ),
    remedy="none found: run `aws configure` or `aws sso login`, or name a profile under options",
)
_FILE = "application_default_credentials.json"
# Places of Google's application default credentials, in the order in which google.auth looks.
_GCP_CREDENTIALS = CredentialPlaces(
    variables=(),
    files=(
        CredentialFile(f".config/gcloud/{_FILE}", "GOOGLE_APPLICATION_CREDENTIALS"),
        CredentialFile(f".config/gcloud/{_FILE}", "CLOUDSDK_CONFIG", names_folder=True),
    ),
    remedy="none found: run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS",
)
_PRINCIPAL = ("AZURE_CLIENT_ID", "AZURE_TENANT_ID")
# Places of Azure credentials: a service principal in the environment, or the login of ``az``.
_AZURE_CREDENTIALS = CredentialPlaces(
    variables=(
        (*_PRINCIPAL, "AZURE_CLIENT_SECRET"),
        (*_PRINCIPAL, "AZURE_CLIENT_CERTIFICATE_PATH"),
        (*_PRINCIPAL, "AZURE_FEDERATED_TOKEN_FILE"),
    ),
    # After `az logout` the list of subscriptions is empty.
    files=(
        CredentialFile(
            ".azure/azureProfile.json", "AZURE_CONFIG_DIR", names_folder=True, pattern=r'"subscriptions"\s*:\s*\[\s*\{'
        ),
    ),
    remedy="none found: run `az login`, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and a secret or certificate",
)
_NEOCLOUD = "providers.neoclouds.provider:make"

CLOUDS: Mapping[str, CloudRegistration] = MappingProxyType(
    {
        "aws": CloudRegistration(
            "Amazon EC2",
            "providers.aws.provider:AwsProvider",
            "aws",
            fleet="providers.aws.fleet:AwsFleet",
            notices="providers.aws.interruptions:AwsNoticeQueue",
            sellers=("Amazon Web Services", "Amazon Web Services, Inc.", "Amazon"),
            credential_places=_AWS_CREDENTIALS,
        ),
        "gcp": CloudRegistration(
            "Google Compute Engine",
            "providers.gcp.provider:make",
            "gcp",
            _NEOCLOUD,
            fleet="providers.gcp.fleet:GcpFleet",
            sellers=("Google Cloud", "Google Cloud Platform", "Google"),
            credential_places=_GCP_CREDENTIALS,
        ),
        "azure": CloudRegistration(
            "Azure",
            "providers.azure.provider:AzureProvider",
            "azure",
            fleet="providers.azure.fleet:AzureFleet",
            sellers=("Microsoft Azure", "Microsoft", "Microsoft Corporation"),
            credential_places=_AZURE_CREDENTIALS,
        ),
        "lambda": CloudRegistration("Lambda", _NEOCLOUD, sellers=("Lambda Labs", "Lambda Cloud")),
        "nebius": CloudRegistration("Nebius", _NEOCLOUD, sellers=("Nebius B.V.", "Nebius AI Cloud")),
        "runpod": CloudRegistration("RunPod", _NEOCLOUD),
        "verda": CloudRegistration("Verda (DataCrunch)", _NEOCLOUD, sellers=("Verda", "DataCrunch")),
        "vast": CloudRegistration("Vast.ai", _NEOCLOUD, sellers=("Vast",)),
        "static": CloudRegistration("hosts of your own", "providers.static.provider:StaticProvider", by_default=False),
        "sandbox": CloudRegistration(
            "sandbox on this machine",
            "providers.sandbox.provider:make",
            by_default=False,
            fleet="providers.sandbox.fleet:SandboxFleet",
        ),
    }
)


def find_cloud(name: str) -> str | None:
    """Return the cloud (a key of :data:`CLOUDS`) that a bill calls ``name``, in any case; None without one."""
    folded = name.strip().casefold()
    for cloud, entry in CLOUDS.items():
        if folded in {word.casefold() for word in (cloud, entry.title, *entry.sellers)}:
            return cloud
    return None


def open_provider(cloud: str, session: Session) -> Provider:
    """Return the adapter of ``cloud`` (a key of :data:`CLOUDS`; KeyError otherwise). Touches no network.

    SdkMissingError when its SDK is missing and it cannot do without, naming the extra that installs it.
    """
    return cast("Provider", _open(cloud, CLOUDS[cloud].factory, session))


def open_public_provider(cloud: str, session: Session) -> Provider | None:
    """Return the provider of public prices of ``cloud``, for when its own adapter needs an account.

    None where there is no such thing, or the adapter reads public sources by itself.
    """
    entry = CLOUDS[cloud]
    return cast("Provider", _make(entry.public, cloud, session)) if entry.public else None


def open_fleet(cloud: str, session: Session) -> Fleet | None:
    """Return the fleet of ``cloud`` (a key of :data:`CLOUDS`; KeyError otherwise), which finds and releases machines.

    None where attempts make no machines. Touches no network. SdkMissingError as :func:`open_provider`.
    """
    entry = CLOUDS[cloud]
    return cast("Fleet", _open(cloud, entry.fleet, session)) if entry.fleet else None


def open_notices(cloud: str, session: Session) -> NoticeQueue | None:
    """Return the notice queue in the settings of ``cloud`` (a key of :data:`CLOUDS`; KeyError otherwise).

    None where they name none, or the cloud has no such thing. Touches no network. SdkMissingError as
    :func:`open_provider`.
    """
    entry = CLOUDS[cloud]
    if not entry.notices or QUEUE_OPTION not in session.settings.options:
        return None
    return cast("NoticeQueue", _open(cloud, entry.notices, session))


def _open(cloud: str, factory: str, session: Session) -> object:
    extra = CLOUDS[cloud].extra
    try:
        return _make(factory, cloud, session)
    except ModuleNotFoundError as error:
        if not extra:
            raise
        remedy = f"pip install 'stepfare[{extra}]'"
        raise SdkMissingError(cloud, str(error.name), remedy=remedy) from None


def _make(factory: str, cloud: str, session: Session) -> object:
    module, _, function = factory.partition(":")
    return getattr(importlib.import_module(module), function)(cloud, session)


@dataclass(frozen=True, slots=True)
class CredentialPresence:
    """Whether credentials were found: ``place`` says where, ``remedy`` what to do where there are none."""

    cloud: str
    place: str
    remedy: str

    @property
    def found(self) -> bool:
        """Return whether there are any."""
        return bool(self.place)


def find_credentials(cloud: str, environment: Mapping[str, str], home: Path) -> CredentialPresence:
    """Return whether ``cloud`` (a key of ``CLOUDS``) has credentials here; they may still be refused or expired.

    Roles of machines are not looked for, since only a network service knows them.
    """
    places = CLOUDS[cloud].credential_places
    if places is None:
        return CredentialPresence(cloud, "", "needs none: its public prices are compared with")
    for group in places.variables:
        if all(environment.get(variable) for variable in group):
            return CredentialPresence(cloud, f"{group[0]} in the environment", "")
    for file in places.files:
        if _matches(file.path(environment, home), file.pattern):
            named = bool(file.variable and environment.get(file.variable))
            return CredentialPresence(
                cloud, f"the place that {file.variable} names" if named else f"~/{file.default}", ""
            )
    return CredentialPresence(cloud, "", places.remedy)


def _matches(path: Path, pattern: str) -> bool:
    try:
        return re.search(pattern, path.read_text(encoding="utf-8-sig", errors="replace")) is not None
    except (OSError, ValueError):  # A missing file, a folder, a name with NUL.
        return False
