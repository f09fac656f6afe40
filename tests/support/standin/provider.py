"""A stand-in Terraform provider: the schema of the real one, and records instead of a cloud.

    python provider.py aws|google|azurerm

Terraform starts it in the place of the provider binary; it runs in an environment of its own (requirements.txt). The
schema comes from schemas/<name>.json. What is created is kept as asked for, with an id and whatever else the real
provider fills made up; where handlers.py knows the resource, calls go to the endpoint AWS_ENDPOINT_URL instead, and
where told.py does, a local service at STEPFARE_STANDIN_CLOUD is told.
"""
# The packages below are in that other environment only.
# mypy: disable-error-code="import-not-found"
# mypy: allow-subclassing-any

from __future__ import annotations

import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any, ClassVar

from tf import runner
from tf import schema as tf_schema
from tf import types as tf_types
from tf.blocks import SetNestedBlock
from tf.gen import tfplugin_pb2
from tf.iface import DataSource, Provider, Resource
from tf.types import Unknown

HERE = Path(__file__).resolve().parent

# What the real provider fills in when the configuration is silent: the schema files cannot tell.
FILLED: dict[str, set[str]] = {
    "*": {"id"},
    "aws": {"region", "tags_all", "arn", "availability_zone", "availability_zone_id", "private_ip", "ami"},
    "google": {"project", "network_ip", "nat_ip"},
    "azurerm": set(),
}
# What cannot change in place.
REPLACES = {
    "ami",
    "availability_zone_id",
    "cidr_block",
    "instance_type",
    "location",
    "machine_type",
    "name",
    "size",
    "sku",
    "zone",
}


class Anything(tf_types.String):
    """A type given as Terraform writes it in JSON; values pass through."""

    def __init__(self, written: Any) -> None:
        self.written = written

    def tf_type(self) -> bytes:
        return json.dumps(self.written, separators=(",", ":")).encode()


class Nested(SetNestedBlock):
    """A nested block of any mode; the package itself has sets only."""

    def __init__(self, name: str, described: dict[str, Any], filled: set[str]) -> None:
        super().__init__(name, tf_schema.Block(**body(described["block"], filled)))
        self.mode = described["nesting_mode"]
        self.least, self.most = described.get("min_items", 0), described.get("max_items", 0)

    def to_pb(self) -> Any:
        nesting = getattr(tfplugin_pb2.Schema.NestedBlock.NestingMode, self.mode.upper())
        return tfplugin_pb2.Schema.NestedBlock(
            type_name=self.type_name,
            block=self.block.to_pb(),
            nesting=nesting,
            min_items=self.least,
            max_items=self.most,
        )

    def encode(self, value: Any) -> Any:
        if value is None or value is Unknown:
            return value
        return super().encode([value])[0] if self.mode == "single" else super().encode(value)

    def decode(self, value: Any) -> Any:
        if value is None or value is Unknown:
            return value
        return super().decode([value])[0] if self.mode == "single" else super().decode(value)

    def semantically_equal(self, a_decoded: Any, b_decoded: Any) -> bool:
        return bool(a_decoded == b_decoded)


def of_type(written: Any) -> Any:
    if isinstance(written, list) and written[0] in ("list", "set", "map") and isinstance(written[1], str):
        return {"list": tf_types.List, "set": tf_types.Set, "map": tf_types.Map}[written[0]](of_type(written[1]))
    simple = {"string": tf_types.String, "number": tf_types.Number, "bool": tf_types.Bool}
    return simple[written]() if isinstance(written, str) and written in simple else Anything(written)


def body(described: dict[str, Any], filled: set[str]) -> dict[str, Any]:
    attributes = [
        tf_schema.Attribute(
            name,
            of_type(a["type"]),
            required=a.get("required"),
            optional=a.get("optional"),
            computed=a.get("computed") or (name in filled and not a.get("required")),
            requires_replace=name in REPLACES,
        )
        for name, a in described["attributes"].items()
    ]
    return {
        "attributes": attributes,
        "block_types": [Nested(name, b, filled) for name, b in described["block_types"].items()],
    }


def settled(state: dict[str, Any], **known: Any) -> dict[str, Any]:
    """The state with what is known filled in and every other unknown value null."""
    kept = {name: settled_value(value) for name, value in state.items()}
    return {**kept, **{name: value for name, value in known.items() if name in kept}}


def settled_value(value: Any) -> Any:
    if value is Unknown:
        return None
    if isinstance(value, list):
        return [settled_value(v) for v in value]
    return {k: settled_value(v) for k, v in value.items()} if isinstance(value, dict) else value


class Recorded(Resource):
    """Keeps what was asked for; no cloud behind it."""

    NAME: ClassVar[str]
    SCHEMA: ClassVar[Any]

    def __init__(self, provider: StandIn) -> None:
        self.provider = provider

    @classmethod
    def get_name(cls) -> str:
        return cls.NAME

    @classmethod
    def get_schema(cls) -> Any:
        return cls.SCHEMA

    def create(self, ctx: Any, planned: dict[str, Any]) -> dict[str, Any] | None:
        named = planned.get("name")
        return settled(planned, id=named if isinstance(named, str) else str(uuid.uuid4()), tags_all=planned.get("tags"))

    def read(self, ctx: Any, current: dict[str, Any]) -> dict[str, Any] | None:
        return current

    def update(self, ctx: Any, current: dict[str, Any], planned: dict[str, Any]) -> dict[str, Any] | None:
        return settled(planned, **{k: v for k, v in current.items() if planned.get(k) is Unknown})

    def delete(self, ctx: Any, current: dict[str, Any]) -> dict[str, Any] | None:
        return None


class Nothing(DataSource):
    """A data source that finds nothing: enough for validate and for mocked providers."""

    NAME: ClassVar[str]
    SCHEMA: ClassVar[Any]

    def __init__(self, provider: StandIn) -> None:
        self.provider = provider

    @classmethod
    def get_name(cls) -> str:
        return cls.NAME

    @classmethod
    def get_schema(cls) -> Any:
        return cls.SCHEMA

    def read(self, ctx: Any, config: dict[str, Any]) -> dict[str, Any]:
        return settled(config)


class StandIn(Provider):
    def __init__(self, name: str, handlers: dict[str, type[Recorded]]) -> None:
        self.name = name
        self.handlers = handlers
        self.settings: dict[str, Any] = {}
        self.document = json.loads((HERE / "schemas" / f"{name}.json").read_text())
        self.filled = FILLED["*"] | FILLED[name]

    def get_model_prefix(self) -> str:
        return f"{self.name}_"

    def full_name(self) -> str:
        return str(self.document["provider"])

    def get_provider_schema(self, diags: Any) -> Any:
        return tf_schema.Schema(**body(self.document["provider_schema"], set()))

    def validate_config(self, diags: Any, config: Any) -> None:
        pass

    def configure_provider(self, diags: Any, config: Any) -> None:
        self.settings = config or {}

    def get_resources(self) -> list[Any]:
        return [
            self._kind(name, self.handlers.get(name, Recorded), described)
            for name, described in self.document["resource_schemas"].items()
        ]

    def get_data_sources(self) -> list[Any]:
        return [self._kind(n, Nothing, described) for n, described in self.document["data_source_schemas"].items()]

    def _kind(self, name: str, base: Any, described: dict[str, Any]) -> Any:
        schema = tf_schema.Schema(version=1, **body(described, self.filled))
        return type(name, (base,), {"NAME": name.removeprefix(f"{self.name}_"), "SCHEMA": schema})


if __name__ == "__main__":
    calls: dict[str, type[Recorded]] = {}
    if sys.argv[1] == "aws" and "AWS_ENDPOINT_URL" in os.environ:
        # boto3 takes a while: only when it is used.
        from tests.support.standin.handlers import KINDS

        calls = KINDS
    elif "STEPFARE_STANDIN_CLOUD" in os.environ:
        from tests.support.standin import told

        calls = told.KINDS
    runner.run_provider(StandIn(sys.argv[1], calls), sys.argv[:1])
