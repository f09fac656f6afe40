"""Makes the schema files of tests/support/standin/schemas from published bindings of the providers.

    pip download --no-deps cdktn-provider-aws cdktn-provider-azurerm cdktn-provider-google
    python -m tests.support.extract_schema cdktn_provider_*.whl

A package is a wheel of cdktn-provider-* or an npm tarball of @cdktn/provider-* or @cdktf/provider-*; it is read, never
installed. Its sources were generated from the provider's own schema and keep: required, optional, computed only, types,
nested blocks with their nesting, at least one, at most one. They do not keep: optional and computed at once, sensitive,
forces a new resource, counts above one, conflicts and valid values (provider_rules.py has those that matter here).
Names starting with `data_` are data sources, the others resources. Which ones are wanted is WANTED below: what the
modules use. The provider's own block is taken whole, less the endpoints of single services.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).parent / "standin" / "schemas"

WANTED: dict[str, tuple[str, ...]] = {
    "aws": (
        *("iam_instance_profile", "iam_role", "iam_role_policy", "instance", "internet_gateway", "key_pair"),
        *("eip", "launch_template", "nat_gateway", "placement_group", "route_table", "route_table_association"),
        *("data_ssm_parameter", "security_group", "subnet", "vpc", "vpc_endpoint"),
        *("vpc_security_group_egress_rule", "vpc_security_group_ingress_rule"),
    ),
    "google": (
        *("compute_firewall", "compute_instance", "compute_network", "compute_resource_policy", "compute_subnetwork"),
        *("artifact_registry_repository_iam_member", "service_account", "storage_bucket_iam_member"),
    ),
    "azurerm": (
        *("application_security_group", "linux_virtual_machine", "linux_virtual_machine_scale_set"),
        *("nat_gateway", "nat_gateway_public_ip_association", "subnet_nat_gateway_association"),
        *("network_interface", "network_interface_application_security_group_association"),
        *("network_interface_security_group_association", "network_security_group", "network_security_rule"),
        *("public_ip", "resource_group", "role_assignment", "subnet", "user_assigned_identity", "virtual_network"),
        "data_virtual_machine_scale_set",
    ),
}

_PROPERTY = re.compile(
    r"/\*\*(?P<doc>(?:(?!\*/).)*)\*/\s*readonly (?P<camel>\w+)(?P<optional>\??): (?P<type>[^;]+);", re.S
)
_INTERFACE = re.compile(r"export interface (\w+)(?: extends [\w.]+)? \{(.*?)\n\}", re.S)
_CONFIG = re.compile(r"export interface (\w+)(?: extends cdkt[fn]\.TerraformMetaArguments|(?<=ProviderConfig)) \{")
_HCL_NAME = re.compile(r"#(\w+) \w+#(\w+)\}")
_MEMBER = re.compile(
    r"^        (\w+): \{\n\s+value: [^\n]*\n\s+isBlock: (true|false),\n\s+type: \"([\w]+)\","
    r"\n\s+storageClassType: \"(\w+)\"",
    re.M,
)
_STRUCT = re.compile(r"function (\w+)ToHclTerraform\(struct\) \{(.*?)\n\}", re.S)
_GETTER = re.compile(
    r"^    get \w+\(\) \{\n\s+return (?:cdkt[fn]\.Fn\.tolist\()?this\.get(\w+?)Attribute\('(\w+)'\)", re.M
)
_COMPUTED_LIST = re.compile(r"new (\w+)List\(this, \"(\w+)\", (true|false)\)")
_WRITTEN_TYPES = {
    "stringList": "string",
    "numberList": "number",
    "booleanList": "bool",
    "stringMap": "string",
    "numberMap": "number",
    "booleanMap": "bool",
    "boolean": "bool",
    "any": "dynamic",
}
_READ_TYPES: dict[str, Any] = {
    "String": "string",
    "Number": "number",
    "Boolean": "bool",
    "List": ["list", "string"],
    "StringMap": ["map", "string"],
}

Members = dict[str, tuple[bool, str, str]]


def schema_of(declarations: str, code: str) -> dict[str, Any]:
    """The block of one resource or data source, from its index.d.ts and index.js."""
    interfaces: dict[str, str] = dict(_INTERFACE.findall(declarations))
    structs = {name.lower(): _members(body) for name, body in _STRUCT.findall(code)}
    config = _CONFIG.findall(declarations)[0]
    block = _block(interfaces, structs, config, _members(code[code.index("synthesizeHclAttributes()") :]))
    for name, kind in _computed(declarations, code):
        if name not in block["attributes"] and name not in block["block_types"]:
            block["attributes"][name] = {"type": kind, "computed": True}
    return block


def _members(body: str) -> Members:
    level = re.sub(r"(?m)^\s{8,12}(?=\w+: \{)", "        ", body)
    return {m[1]: (m[2] == "true", m[3], m[4]) for m in _MEMBER.finditer(level)}


def _block(interfaces: dict[str, str], structs: dict[str, Members], name: str, members: Members) -> dict[str, Any]:
    block: dict[str, Any] = {"attributes": {}, "block_types": {}}
    for found in _PROPERTY.finditer(interfaces[name]):
        named = _HCL_NAME.search(found["doc"])
        if not named:
            continue
        is_block, kind, storage = members[named[1]]
        required = not found["optional"]
        inner = re.match(r"\w+", found["type"].strip())
        if is_block and inner and inner[0] in interfaces:
            nested: dict[str, Any] = {
                "nesting_mode": "single" if named[1] == "timeouts" else "set" if kind == "set" else "list",
                "block": _block(interfaces, structs, inner[0], structs.get(inner[0].lower(), {})),
            }
            if "[]" not in found["type"] and named[1] != "timeouts":
                nested["max_items"] = 1
            if required:
                nested["min_items"] = 1
            block["block_types"][named[1]] = nested
        else:
            block["attributes"][named[1]] = {
                "type": _written_type(kind, storage),
                "required" if required else "optional": True,
            }
    return block


def _written_type(kind: str, storage: str) -> Any:
    base = _WRITTEN_TYPES.get(storage, storage)
    if kind == "simple":
        return base
    return [kind, base] if kind in ("list", "set", "map") else "dynamic"


def _computed(declarations: str, code: str) -> Iterator[tuple[str, Any]]:
    """What can only be read: plain attributes, and lists of objects of plain attributes."""
    found = re.search(
        r"export declare class (\w+) extends cdkt[fn]\.Terraform(?:Resource|DataSource|Provider)", declarations
    )
    assert found is not None
    body = code[code.index(f"class {found[1]} extends ") :]
    for kind, name in _GETTER.findall(body):
        yield name, _READ_TYPES.get(kind, "dynamic")
    for element, name, wraps_set in _COMPUTED_LIST.findall(body):
        start = code.index(f"class {element}OutputReference extends ")
        text = code[start : code.index("\nclass ", start)]
        fields = {n: _READ_TYPES.get(k, "dynamic") for k, n in _GETTER.findall(text)}
        if "dynamic" not in fields.values():
            yield name, ["set" if wraps_set == "true" else "list", ["object", fields]]


def _package(path: Path) -> tarfile.TarFile:
    """The npm tarball: the file itself, or the one in a wheel."""
    if path.suffix != ".whl":
        return tarfile.open(path)
    with zipfile.ZipFile(path) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".jsii.tgz"))
        return tarfile.open(fileobj=io.BytesIO(wheel.read(name)))


def extract(package: Path) -> dict[str, Any]:
    """The schema file of one downloaded package: provider, version, its own block, resources, data sources."""
    texts: dict[str, str] = {}
    with _package(package) as archive:
        for member in archive:
            if re.fullmatch(r"package/(package\.json|lib/[\w-]+/index\.(d\.ts|js))", member.name):
                stream = archive.extractfile(member)
                texts[member.name] = stream.read().decode() if stream else ""
    described = json.loads(texts["package/package.json"])
    provider = (described.get("cdktn") or described["cdktf"])["provider"]
    short = provider["name"].rsplit("/", 1)[-1]

    def read(folder: str) -> dict[str, Any]:
        return schema_of(texts[f"package/lib/{folder}/index.d.ts"], texts[f"package/lib/{folder}/index.js"])

    own = read("provider")
    own["block_types"].pop("endpoints", None)
    own["attributes"] = {n: a for n, a in own["attributes"].items() if not n.endswith("_custom_endpoint")}
    schemas: dict[str, dict[str, Any]] = {"resource_schemas": {}, "data_source_schemas": {}}
    for wanted in WANTED[short]:
        folder = wanted.replace("_", "-").replace("data-", f"data-{short}-", wanted.startswith("data_"))
        kind = "data_source_schemas" if wanted.startswith("data_") else "resource_schemas"
        schemas[kind][f"{short}_{wanted.removeprefix('data_')}"] = read(folder)
    return {"provider": provider["name"], "version": provider["version"], "provider_schema": own, **schemas}


if __name__ == "__main__":
    for package in map(Path, sys.argv[1:]):
        document = extract(package)
        file = SCHEMAS / f"{document['provider'].rsplit('/', 1)[-1]}.json"
        file.write_text(json.dumps(document, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")
        print(f"{file.name}: {document['provider']} {document['version']}")
