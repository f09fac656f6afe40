"""A workspace that can be made can be sent to any cloud; what cannot is refused with the reason, no secret in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pricing.money import UsdPerHour
from pricing.places import Market
from terraform.spec import (
    LARGEST_USER_DATA_BYTES,
    Backend,
    Host,
    NetworkSpec,
    NodeSpec,
    ReadableSpec,
    WorkspaceSpec,
    to_tag_value,
)
from tests.support.gangs import CONTAINER, KEY, examples, sandbox

CANARY = "canary-7c1e-token"


def _node(**more: Any) -> NodeSpec:
    return NodeSpec(**{"rank": 0, "name": "n0", "zone": None, "instance_type": "m", "market": Market.SPOT, **more})


def test_every_example_is_accepted_and_does_not_change() -> None:
    for spec in examples().values():
        assert replace(spec) == spec
        with pytest.raises(TypeError):
            spec.tags["team"] = "other"  # type: ignore[index]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"attempt": "Night-1"}, "attempt 'Night-1': lower-case"),
        ({"attempt": "1st"}, "a letter first"),
        ({"attempt": "a" * 41}, "up to 40"),
        ({"attempt": "a-"}, "no hyphen last"),
        ({"attempt": "a;rm"}, "lower-case"),
        ({"cloud": "lambda"}, "no machines can be made on 'lambda'"),
        ({"region": "us east"}, "region 'us east'"),
        ({"nodes": ()}, "without nodes"),
        ({"tags": {"team!": "a"}}, "tag 'team!'"),
        ({"tags": {"aws:team": "a"}}, "keep that name"),
        ({"tags": {"Name": "a"}}, "keep that name"),
        ({"tags": {"cost.center": "a", "Cost_Center": "b"}}, "one label on Google Cloud: cost_center"),
        ({"tags": {"team": "Research & Co"}}, "at most 63 characters"),
        ({"tags": {f"t{n}": "" for n in range(41)}}, "41 tags"),
        ({"image": "a b"}, "image"),
        ({"fabric": "EFA!"}, "fabric"),
        ({"disk_gib": 5}, "a disk of 5 GiB"),
        ({"checkpoint_bucket": "s3://bucket/path"}, "no scheme, no path"),
        ({"ssh_public_key": "-----BEGIN PRIVATE KEY-----"}, "one line of a public key"),
        ({"ssh_public_key": KEY + "\n" + KEY}, "one line of a public key"),
        ({"user_data": {4: "x"}}, "ranks that the gang does not have: 4"),
        ({"user_data": {0: "é" * LARGEST_USER_DATA_BYTES}}, "rank 0 is 32,768 bytes"),
    ],
)
def test_what_some_cloud_would_refuse_is_refused_here(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        replace(sandbox(), **change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rank": -1}, "negative"),
        ({"name": "a_b"}, "name of a node 'a_b'"),
        ({"name": "a" * 64}, "up to 63"),
        ({"instance_type": "$(id)"}, "instance type"),
        ({"zone": ""}, "zone ''"),
        ({"max_usd_per_hour": UsdPerHour.parse("0")}, "would never be met"),
        ({"market": Market.RESERVED, "max_usd_per_hour": UsdPerHour.parse("1")}, "no price ceiling"),
        ({"reservation": "a b"}, "reservation"),
        ({"market": Market.RESERVED, "placement_group": "g"}, "a reservation was made in"),
        ({"market": Market.RESERVED, "reservation": "r", "placement_group": "g h"}, "not a name or a path"),
    ],
)
def test_nodes_are_checked(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        _node(**change)


def test_a_gang_is_whole_ranks_in_order_names_of_their_own() -> None:
    one, two = _node(), _node(rank=1, name="n1")
    for nodes, said in (
        ((two,), "ranks must be 0 to 0"),
        ((two, one), "each once and in order"),
        ((one, one), "they are 0, 0"),
        ((one, replace(two, name="n0")), "more than one node is called n0"),
        (tuple(replace(two, name=f"n{n}") for n in range(20)), "(20 in all)"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            WorkspaceSpec("a", "sandbox", "local", nodes)


def test_secrets_are_in_no_representation_and_no_refusal() -> None:
    spec = replace(sandbox(), user_data={0: CANARY})
    assert CANARY not in repr(spec)
    with pytest.raises(ValueError, match="rank 0") as refused:
        replace(spec, user_data={0: CANARY * LARGEST_USER_DATA_BYTES})
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        ("consul", {}, "unknown; one of azurerm, gcs, http, local, pg, s3"),
        ("local", {"path": "/tmp/x"}, "takes no settings"),
        ("s3", {"bucket": "b", "key": "one", "use_lockfile": True}, "key must contain {attempt}"),
        ("s3", {"key": "{attempt}"}, "locks nothing without use_lockfile or dynamodb_table"),
        ("s3", {"key": "{attempt}", "use_lockfile": True, "secret_key": CANARY}, "secret_key may be secret"),
        ("azurerm", {"key": "{attempt}", "sas_token": CANARY}, "sas_token may be secret"),
        ("pg", {"schema_name": "{attempt}", "conn_str": f"postgres://u:{CANARY}@db"}, "conn_str may be secret"),
        ("http", {"address": f"https://u:{CANARY}@host/{{attempt}}"}, "user or password"),
        ("http", {"address": "https://host/{attempt}"}, "without lock_address"),
    ],
)
def test_backends_lock_keep_states_apart_and_hold_no_secret(kind: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)) as refused:
        Backend(kind, settings)
    assert CANARY not in str(refused.value)


def test_each_attempt_has_a_place_of_its_own_in_a_backend() -> None:
    backend = Backend("pg", {"schema_name": "stepfare_{attempt}"})
    assert backend.of("a-1") == {"schema_name": "stepfare_a-1"}
    assert backend.of("a-2") != backend.of("a-1")


def test_networks_are_ids() -> None:
    assert NetworkSpec("vpc-1", {"": "subnet-1"}).subnet_ids == {"": "subnet-1"}
    with pytest.raises(ValueError, match="is not the id of a network"):
        NetworkSpec("vpc 1")


@pytest.mark.parametrize(
    ("cloud", "change", "said"),
    [
        ("azure", {"ssh_public_key": None}, "azure makes no Linux machine without ssh_public_key"),
        ("azure", {"checkpoint_bucket": "checkpoints"}, "'checkpoints' is not the resource id of a container"),
        ("azure", {"checkpoint_bucket": CONTAINER + "/blob"}, "is not the resource id"),
        ("aws", {"checkpoint_bucket": CONTAINER}, "is not the name of a bucket"),
        ("azure", {"readable": ReadableSpec(("corpus",))}, "'corpus' is not the resource id of a container"),
        ("gcp", {"readable": ReadableSpec(("gs://corpus",))}, "is not the name of a bucket"),
        ("aws", {"permissions_boundary": "stepfare-boundary"}, "is not the ARN of a policy"),
        ("aws", {"instance_profile": "arn:aws:iam::123456789012:instance-profile/x"}, "a name, no ARN"),
        ("gcp", {"instance_profile": "stepfare-nodes"}, "gcp has neither permissions_boundary nor instance_profile"),
        ("static", {"hosts": {}}, "each rank needs a host: 2 ranks, hosts for none"),
        ("static", {"hosts": {0: Host("a"), 2: Host("b")}}, "2 ranks, hosts for 0, 2"),
        ("static", {"hosts": {0: Host("a"), 1: Host("a")}}, "more than one rank on a:22"),
        ("static", {"private_key_path": Path("keys/pool")}, "private_key_path 'keys/pool' is not an absolute path"),
        ("aws", {"hosts": {0: Host("a")}}, "not for aws"),
        ("sandbox", {"private_key_path": Path("/k")}, "not for sandbox"),
    ],
)
def test_what_one_cloud_asks_for(cloud: str, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        replace(examples()[cloud], **change)


def test_google_makes_machines_in_a_zone_only() -> None:
    spec = examples()["gcp"]
    nodes = (spec.nodes[0], replace(spec.nodes[1], zone=None))
    with pytest.raises(ValueError, match="in a zone only; without one: llama-7f3a-1-1"):
        replace(spec, nodes=nodes)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"address": "a b"}, "address 'a b' of a host"),
        ({"address": "-oProxyCommand=x"}, "neither a name nor an IP"),
        ({"private_address": ""}, "private address ''"),
        ({"port": 0}, "port 0 is not 1 to 65535"),
        ({"port": 65536}, "port 65536"),
        ({"user": "a;b"}, "'a;b' is not the name of a user"),
        ({"host_key": f"-----BEGIN PRIVATE KEY----- {CANARY}"}, "host_key is not one line of a public key"),
    ],
)
def test_hosts_are_checked(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)) as refused:
        Host(**{"address": "dgx-1", **change})
    assert CANARY not in str(refused.value)


def test_hosts_by_name_and_by_either_kind_of_address() -> None:
    for address in ("dgx-1.example.org", "192.0.2.1", "2001:db8::1", "::1"):
        assert Host(address, host_key=KEY).address == address


@pytest.mark.parametrize("text", ["research", "cc-42", "", "a_b"])
def test_a_good_tag_value_stays(text: str) -> None:
    assert to_tag_value(text) == text


def test_other_texts_become_tag_values_and_stay_apart() -> None:
    texts = ["Research & Co", "research & co", "é", "x" * 80, "x" * 81, "a/b", "a b", "-" * 70]
    tags = [to_tag_value(text) for text in texts]
    assert len(set(tags)) == len(texts)
    for tag in tags:
        replace(sandbox(), tags={"team": tag})


@pytest.mark.parametrize(
    "registry",
    ["123456789012.dkr.ecr.eu-west-1.amazonaws.com/train", "gcr.io/project", "example.azurecr.io", "arn:aws:ecr:::*"],
)
def test_a_registry_is_named_as_its_cloud_names_resources(registry: str) -> None:
    with pytest.raises(ValueError, match="is no registry"):
        ReadableSpec((), (registry,))
