"""Specification of one gang's workspace, its backend and its hosts: frozen values, checked when they are made.

ValueError says what is wrong and contains no secret. Limits are the strictest of the clouds', so that a spec that can
be made can be sent anywhere.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from pricing.money import UsdPerHour
from pricing.places import Market
from terraform.module_metadata import module_facts

LOCAL: Final = "local"


@dataclass(frozen=True, slots=True)
class Backend:
    """The backend that holds Terraform's state: ``local`` (in the run directory), or s3, gcs, azurerm, http, pg.

    ``settings`` are not secret; credentials reach a backend through the environment only. The setting that says where
    one state lies must contain ``{attempt}``, since two attempts in one state would destroy each other's machines.
    """

    kind: str = LOCAL
    settings: Mapping[str, str | bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", MappingProxyType(dict(sorted(self.settings.items()))))
        if self.kind not in _STATE_PLACE:
            raise ValueError(f"backend {self.kind!r} is unknown; one of {', '.join(sorted(_STATE_PLACE))}")
        secret = sorted(name for name in self.settings if _SECRET_SETTING.search(name))
        if secret:
            raise ValueError(
                f"backend {self.kind}: {', '.join(secret)} may be secret: set it in the environment instead"
            )
        if any("@" in value.partition("://")[2].partition("/")[0] for value in self._texts()):
            raise ValueError(f"backend {self.kind}: an address with a user or password: set them in the environment")
        place = _STATE_PLACE[self.kind]
        if place is None and self.settings:
            raise ValueError(f"backend {self.kind} takes no settings: its state lies in the run directory")
        if place is not None and "{attempt}" not in str(self.settings.get(place, "")):
            raise ValueError(
                f"backend {self.kind}: {place} must contain {{attempt}}: each attempt has a state of its own"
            )
        lock = _LOCK_SETTINGS.get(self.kind)
        if lock is not None and not any(self.settings.get(name) for name in lock):
            raise ValueError(
                f"backend {self.kind} locks nothing without {' or '.join(lock)}: two runs could write at once"
            )

    def _texts(self) -> list[str]:
        return [value for value in self.settings.values() if isinstance(value, str)]

    def of(self, attempt: str) -> dict[str, str | bool]:
        """Return the settings with ``{attempt}`` filled in."""
        return {
            name: value.replace("{attempt}", attempt) if isinstance(value, str) else value
            for name, value in self.settings.items()
        }


# The setting of each backend that tells one state from another.
_STATE_PLACE: Final[Mapping[str, str | None]] = {
    LOCAL: None,
    "s3": "key",
    "gcs": "prefix",
    "azurerm": "key",
    "http": "address",
    "pg": "schema_name",
}
# Backends that lock only when told to, and the settings that tell them.
_LOCK_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "s3": ("use_lockfile", "dynamodb_table"),
    "http": ("lock_address",),
}
_SECRET_SETTING: Final = re.compile(r"secret|password|token|credential|access_key|encryption_key|conn_str|private|cert")


LARGEST_PORT: Final = 65_535
# Names and addresses, IPv6 too, but nothing that a shell or SSH would take for something else.
_ADDRESS: Final = re.compile(r"[A-Za-z0-9:](?:[A-Za-z0-9:._-]*[A-Za-z0-9:])?")
_USER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_PUBLIC_KEY: Final = re.compile(r"(?:ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/=]+(?: [^\r\n]*)?")


@dataclass(frozen=True, slots=True)
class Host:
    """One existing host: its SSH address and the user to log in as.

    ``host_key`` is its public key (``ssh-ed25519 AAAA...``); None: any key is accepted. ``private_address`` is where
    the gang reaches it; None: ``address`` too. ValueError for an invalid value.
    """

    address: str
    port: int = 22
    user: str = "root"
    host_key: str | None = None
    private_address: str | None = None

    def __post_init__(self) -> None:
        for what, text in (("address", self.address), ("private address", self.private_address)):
            if text is not None and not _ADDRESS.fullmatch(text):
                raise ValueError(f"{what} {text!r} of a host is neither a name nor an IP address")
        if not 1 <= self.port <= LARGEST_PORT:
            raise ValueError(f"host {self.address}: port {self.port} is not 1 to {LARGEST_PORT}")
        if not _USER.fullmatch(self.user):
            raise ValueError(f"host {self.address}: {self.user!r} is not the name of a user")
        # The message does not quote the key, because it may be the private one.
        if self.host_key is not None and not _PUBLIC_KEY.fullmatch(self.host_key):
            raise ValueError(
                f"host {self.address}: host_key is not one line of a public key, e.g. ssh-ed25519 AAAA... name"
            )


K = TypeVar("K", str, int)
V = TypeVar("V")

ATTEMPT_CHARACTERS: Final = 40  # Leaves room in 63 characters for the suffixes that modules append.
NAME_CHARACTERS: Final = 63
LARGEST_USER_DATA_BYTES: Final = 16_384
MOST_TAGS: Final = 40
LARGEST_DISK_GIB: Final = 2_048

_NAME = re.compile(r"[a-z](?:[a-z0-9-]*[a-z0-9])?")
_TAG_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,62}")
_TAG_VALUE = re.compile(r"[A-Za-z0-9 _.:/=+@-]{0,63}")
# What clouds keep for themselves, and what modules write.
_RESERVED_TAG = re.compile(r"(?i)aws:.*|(?:azure|goog|microsoft|windows).*|name")
_PLAIN_TAG_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ID = re.compile(r"[\w./:-]+")
_FABRIC = re.compile(r"[a-z][a-z0-9-]*")
_POLICY_ARN = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:policy/[\w+=,.@/-]+")
_PROFILE = re.compile(r"[\w+=,.@-]{1,128}")
_ROLE = re.compile(r"/(?:[\w.()-]+/)*providers/Microsoft\.Authorization/roleDefinitions/[\w-]{36}")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,221}[a-z0-9]")
# On Azure, access is granted to a container, named by its resource id.
_CONTAINER = re.compile(
    r"/subscriptions/[\w-]+/resourceGroups/[\w().-]+/providers/Microsoft\.Storage/storageAccounts/[a-z0-9]{3,24}"
    r"/blobServices/default/containers/[a-z0-9-]{3,63}"
)
# What a machine may pull from: a repository's ARN, its path on Google Cloud, or a registry's resource id.
_REGISTRY = re.compile(
    r"arn:aws[a-z-]*:ecr:[a-z0-9-]+:[0-9]{12}:repository/[a-z0-9._/*-]+"
    r"|projects/[\w.:-]+/locations/[a-z0-9-]+/repositories/[a-z0-9-]+"
    r"|/subscriptions/[\w-]+/resourceGroups/[\w().-]+/providers/Microsoft\.ContainerRegistry/registries/[A-Za-z0-9]+"
)


def to_tag_value(text: str) -> str:
    """Return ``text`` as a tag value that every cloud accepts.

    A valid text is returned unchanged; any other is changed and made distinct by a hash, so that two teams never share
    a tag.
    """
    if _PLAIN_TAG_VALUE.fullmatch(text):
        return text
    slug = re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-")[:54]
    return f"{slug}-{hashlib.sha256(text.encode()).hexdigest()[:8]}".lstrip("-")


def check_tags(tags: Mapping[str, str]) -> None:
    """Raise ValueError for tags that some cloud refuses; Google Cloud's labels are made of them by its module."""
    if len(tags) > MOST_TAGS:
        raise ValueError(f"{len(tags)} tags; clouds take {MOST_TAGS} beside their own")
    labels = Counter(re.sub(r"[^a-z0-9_-]", "_", key.lower()) for key in tags)
    for key, value in tags.items():
        if not _TAG_KEY.fullmatch(key):
            raise ValueError(f"tag {key!r}: letters, digits and _ . : -, at most 63, a letter first")
        if _RESERVED_TAG.fullmatch(key):
            raise ValueError(f"tag {key!r}: clouds and modules keep that name for themselves")
        if not _TAG_VALUE.fullmatch(value):
            raise ValueError(f"tag {key}={value!r}: letters, digits, spaces and _ . : / = + @ -, at most 63 characters")
    if twice := sorted(label for label, count in labels.items() if count > 1):
        raise ValueError(f"tags that are one label on Google Cloud: {', '.join(twice)}")


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One machine to be made.

    ``zone`` None: the module picks it. ``max_usd_per_hour`` is the ceiling of a spot bid; ``reservation`` names the
    capacity that was bought, ``placement_group`` the group that it was bought in.
    """

    rank: int
    name: str
    zone: str | None
    instance_type: str
    market: Market
    max_usd_per_hour: UsdPerHour | None = None
    reservation: str | None = None
    placement_group: str | None = None

    def __post_init__(self) -> None:
        if self.rank < 0:
            raise ValueError(f"rank {self.rank} is negative")
        _check_name("name of a node", self.name, NAME_CHARACTERS)
        _check_word("instance type", self.instance_type)
        if self.zone is not None:
            _check_word("zone", self.zone)
        if self.max_usd_per_hour is not None and self.max_usd_per_hour.nanos <= 0:
            raise ValueError(f"node {self.name}: a ceiling of {self.max_usd_per_hour} USD/h would never be met")
        if self.reservation is not None and not _ID.fullmatch(self.reservation):
            raise ValueError(f"node {self.name}: reservation {self.reservation!r} is not an id or a path")
        if self.placement_group is not None and self.reservation is None:
            raise ValueError(f"node {self.name}: a placement group is the one that a reservation was made in")
        if self.placement_group is not None and not _ID.fullmatch(self.placement_group):
            raise ValueError(f"node {self.name}: placement group {self.placement_group!r} is not a name or a path")
        if self.market is Market.RESERVED and self.max_usd_per_hour is not None:
            raise ValueError(f"node {self.name}: reserved capacity has no price ceiling")


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """An existing network; all fields empty: the module makes one, closed but for the gang.

    ``subnet_ids`` is by zone, "" for the whole region. ``public``: machines take a public address each to call out
    from, where their subnet does not say so itself.
    """

    network_id: str | None = None
    subnet_ids: Mapping[str, str] = field(default_factory=dict)
    public: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "subnet_ids", _frozen(self.subnet_ids))
        for what in (self.network_id, *self.subnet_ids.values()):
            if what is not None and not _ID.fullmatch(what):
                raise ValueError(f"{what!r} is not the id of a network or subnet")


@dataclass(frozen=True, slots=True)
class ReadableSpec:
    """The buckets and registries that the machines may read, in the cloud's own notation."""

    buckets: tuple[str, ...] = ()
    registries: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for registry in self.registries:
            if not _REGISTRY.fullmatch(registry):
                raise ValueError(
                    f"{registry!r} is no registry: arn:aws:ecr:REGION:ACCOUNT:repository/NAME, "
                    "projects/PROJECT/locations/LOCATION/repositories/NAME, or a registry's resource id"
                )


@dataclass(frozen=True, slots=True)
class WorkspaceSpec:
    """The workspace of one attempt: a whole gang, in one region of one cloud (only nodes have zones).

    ``nodes`` are sorted by rank, ranks 0 to n-1. ``user_data`` by rank is secret (it contains tokens): not in the repr,
    and at most 16 KiB each. Everything here but ``user_data`` may be shown, logged and stored.

    ``checkpoint_bucket``: the name of a bucket; on Azure the resource id of a container
    (``/subscriptions/.../blobServices/default/containers/NAME``). For aws alone: ``permissions_boundary``, the ARN of
    the policy that bounds the role made for the bucket, or ``instance_profile``, the name of an existing one.
    ``ssh_public_key``: Azure makes no machine without it. ``end_role``, for azure alone: the id of a role with which
    machines deallocate themselves.

    ``shared_zones``: make a network for the gangs of the region, in these zones ("" for any), and no machines. It has
    subnets behind a gateway where ``fabric`` needs one.

    ``hosts`` by rank, for the cloud ``static`` alone, one each; ``private_key_path`` is the file to log in with, None:
    the SSH agent. ``lifetime_seconds``: the age at which the cloud ends the machines, where it can. On Google Cloud
    every node has a zone.
    """

    attempt: str
    cloud: str
    region: str
    nodes: tuple[NodeSpec, ...]
    tags: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    network: NetworkSpec = field(default_factory=NetworkSpec)
    shared_zones: tuple[str, ...] | None = None
    fabric: str = "none"
    disk_gib: int = 200
    checkpoint_bucket: str | None = None
    readable: ReadableSpec = field(default_factory=ReadableSpec)
    permissions_boundary: str | None = None
    instance_profile: str | None = None
    end_role: str | None = None
    ssh_public_key: str | None = None
    user_data: Mapping[int, str] = field(default_factory=dict, repr=False)
    backend: Backend = field(default_factory=Backend)
    hosts: Mapping[int, Host] = field(default_factory=dict)
    private_key_path: Path | None = None
    lifetime_seconds: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tags", _frozen(self.tags))
        object.__setattr__(self, "hosts", _frozen(self.hosts))
        object.__setattr__(self, "user_data", _frozen(self.user_data))
        _check_name("attempt", self.attempt, ATTEMPT_CHARACTERS)
        module_facts(self.cloud)
        _check_word("region", self.region)
        self._check_nodes()
        check_tags(self.tags)
        self._check_machine()
        self._check_cloud()
        self._check_hosts()

    def _check_nodes(self) -> None:
        if not self.nodes and self.shared_zones is None:
            raise ValueError("a gang without nodes")
        if self.shared_zones is not None and (self.nodes or module_facts(self.cloud).shared_network is None):
            raise ValueError(f"a network that gangs of {self.cloud} share: none can be made, or it has nodes")
        ranks = [node.rank for node in self.nodes]
        if ranks != list(range(len(ranks))):
            raise ValueError(f"ranks must be 0 to {len(ranks) - 1}, each once and in order; they are {_short(ranks)}")
        twice = [name for name, count in Counter(node.name for node in self.nodes).items() if count > 1]
        if twice:
            raise ValueError(f"more than one node is called {_short(twice)}")
        unknown_ranks = sorted(set(self.user_data) - set(ranks))
        if unknown_ranks:
            raise ValueError(f"user data for ranks that the gang does not have: {_short(unknown_ranks)}")
        for rank, text in self.user_data.items():
            if (size := len(text.encode())) > LARGEST_USER_DATA_BYTES:
                raise ValueError(f"user data of rank {rank} is {size:,} bytes; clouds take {LARGEST_USER_DATA_BYTES:,}")

    def _check_machine(self) -> None:
        if self.image is not None and not _ID.fullmatch(self.image):
            raise ValueError(f"image {self.image!r} is not an id or a path")
        if not _FABRIC.fullmatch(self.fabric):
            raise ValueError(f"fabric {self.fabric!r} is not a name such as none, efa or infiniband")
        if not 10 <= self.disk_gib <= LARGEST_DISK_GIB:
            raise ValueError(f"a disk of {self.disk_gib} GiB; 10 to {LARGEST_DISK_GIB:,} are possible")
        # The message does not quote the key, because it may be the private one.
        if self.ssh_public_key is not None and not _PUBLIC_KEY.fullmatch(self.ssh_public_key):
            raise ValueError("ssh_public_key is not one line of a public key, e.g. ssh-ed25519 AAAA... name")

    def _check_cloud(self) -> None:
        facts = module_facts(self.cloud)
        for bucket in (*filter(None, (self.checkpoint_bucket,)), *self.readable.buckets):
            if facts.bucket == "container" and not _CONTAINER.fullmatch(bucket):
                raise ValueError(
                    f"{bucket!r} is not the resource id of a container, which {self.cloud} needs: "
                    "/subscriptions/.../storageAccounts/ACCOUNT/blobServices/default/containers/NAME"
                )
            if facts.bucket != "container" and not _BUCKET.fullmatch(bucket):
                raise ValueError(f"{bucket!r} is not the name of a bucket (no scheme, no path)")
        if facts.identities != "instance_profile" and (self.permissions_boundary or self.instance_profile):
            raise ValueError(f"{self.cloud} has neither permissions_boundary nor instance_profile")
        if self.permissions_boundary is not None and not _POLICY_ARN.fullmatch(self.permissions_boundary):
            raise ValueError(
                f"{self.permissions_boundary!r} is not the ARN of a policy: arn:aws:iam::ACCOUNT:policy/NAME"
            )
        if self.instance_profile is not None and not _PROFILE.fullmatch(self.instance_profile):
            raise ValueError(f"{self.instance_profile!r} is not the name of an instance profile (a name, no ARN)")
        if self.end_role is not None and not (facts.end_role and _ROLE.fullmatch(self.end_role)):
            raise ValueError(
                f"end_role {self.end_role!r} is for azure alone, the id of a role: "
                "/subscriptions/.../providers/Microsoft.Authorization/roleDefinitions/ID"
            )
        if facts.key_needed and self.nodes and self.ssh_public_key is None:
            raise ValueError(f"{self.cloud} makes no Linux machine without ssh_public_key")
        zoneless = [node.name for node in self.nodes if node.zone is None]
        if facts.zones_named and zoneless:
            raise ValueError(f"{self.cloud} makes machines in a zone only; without one: {_short(zoneless)}")

    def _check_hosts(self) -> None:
        if not module_facts(self.cloud).hosts_named:
            if self.hosts or self.private_key_path is not None:
                raise ValueError(f"hosts and private_key_path are for machines that are there, not for {self.cloud}")
            return
        ranks = [node.rank for node in self.nodes]
        if sorted(self.hosts) != ranks:
            raise ValueError(
                f"each rank needs a host: {len(ranks)} ranks, hosts for {_short(sorted(self.hosts)) or 'none'}"
            )
        places = Counter((host.address, host.port) for host in self.hosts.values())
        twice = [f"{address}:{port}" for (address, port), count in places.items() if count > 1]
        if twice:
            raise ValueError(f"more than one rank on {_short(twice)}: each has a host of its own")
        if self.private_key_path is not None and not self.private_key_path.is_absolute():
            raise ValueError(f"private_key_path {str(self.private_key_path)!r} is not an absolute path")


def _frozen(mapping: Mapping[K, V]) -> Mapping[K, V]:
    return MappingProxyType(dict(sorted(mapping.items())))


def _short(values: list[int] | list[str]) -> str:
    shown = ", ".join(str(value) for value in values[:8])
    return f"{shown}, ... ({len(values)} in all)" if len(values) > 8 else shown


def _check_name(what: str, text: str, longest: int) -> None:
    if not _NAME.fullmatch(text) or len(text) > longest:
        raise ValueError(
            f"{what} {text!r}: lower-case letters, digits and hyphens, a letter first, no hyphen last, up to {longest}"
        )


def _check_word(what: str, text: str) -> None:
    if not _WORD.fullmatch(text):
        raise ValueError(f"{what} {text!r} has characters that no cloud uses")
