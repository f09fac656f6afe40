"""Write the text of a platform team's first files: clouds, limits, deploy and one example job, each field explained.

A line ``#name: value`` is a field that is left out; without the ``#`` it counts. A line ``# Text.`` is a comment.
Meanings come from the JSON Schemas of the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

from pricing.places import PROVISIONABLE_CLOUDS
from router.config.document_file import build_file_schema

#: Where the files lie below the folder, in the order in which people read them.
FILE_NAMES = ("clouds.yaml", "limits.yaml", "deploy.yaml", "jobs/example.yaml")

# Meanings of fields whose schema states none.
_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "clouds.refresh": "How a refresh of prices behaves.",
        "limits.limits": "At most `amount` of what matches, used by all gangs together at any moment.",
        "limits.reservations": "Machines that are paid for already.",
        "limits.discounts": "Percent off the list price, by contract.",
        "limits.teams": "The month's budget of each team, and what of it is spent.",
        "limits.quotas": "Quotas as `stepfare quotas` read them: `latest`, or a file beside this one.",
        "deploy.backend": "Where Terraform keeps its states; left out: in the run directory.",
        "deploy.coordinator": "The address where machines call home; clouds need one that they can reach, with https.",
        "deploy.timeouts": "How long the controller waits.",
        "deploy.notify": "Messages to people; addresses are named by environment variable, for they are secrets.",
        "deploy.clouds": "Settings of the machines of each cloud.",
        "deploy.clouds.*.disk_gib": "Size of the root disk in GiB.",
        "deploy.clouds.*.network": "An existing network; left out: one is made.",
        "deploy.clouds.*.regions": "Settings of one region, in place of those for all.",
        "job.project": "Project that the cost is reported under.",
        "job.workload": "How fast it runs: measured points, or the shape of a transformer, from which it is estimated.",
        "job.residency": "Places where the job may run and its data may go; left out: anywhere.",
        "job.data": "The training data: where they lie, and how much.",
        "job.budget": "The most that the job may cost, in US dollars.",
        "job.run": "What is started on each machine.",
        "job.run.engine": "How the command is started on the machines.",
        "job.run.command": "Command that every machine runs.",
        "job.run.image": "Container image.",
        "job.run.env": "Environment variables; secrets by name only.",
    }
)
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_/-]*")
# Words that YAML reads as something else than text.
_NOT_TEXT = {"true", "false", "null", "yes", "no", "on", "off"}


@dataclass(frozen=True, slots=True)
class StarterChoices:
    """The answers: clouds, teams with their monthly budget ("" for none), allowed places, alternative gangs.

    ``other_clouds`` are those that are not used: a refresh of prices would ask them too unless it is told not to.
    """

    clouds: tuple[str, ...]
    teams: Mapping[str, str]
    allow: tuple[str, ...]
    accelerators: tuple[str, ...]
    other_clouds: tuple[str, ...] = ()


class _Text:
    """Lines of one file, with the meaning of each field from its schema."""

    def __init__(self, kind: str, title: str) -> None:
        self._kind = kind
        self._schema = _schema(kind)
        self.lines = [
            f"# {title}",
            f"# A line that begins with #name: is a field left out. All fields: stepfare schema {kind}",
        ]

    def field(self, path: str, value: str = "", *nested: str, used: bool = True) -> None:
        """Add a field below its meaning; ``nested`` lines follow it. Of an unused one each line begins with #."""
        *above, name = path.split(".")
        indent = "  " * len(above)
        shape = ".".join((*(("clouds", "*") if above[:1] == ["clouds"] else above), name)) if above else name
        if not above:
            self.lines.append("")
        self.lines.append(f"{indent}# {self._meaning(shape)}")
        mark = "" if used else "#"
        self.lines.append(f"{indent}{mark}{name}:{f' {value}' if value else ''}")
        self.lines += [f"{indent}{mark}  {line}" for line in nested]

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def _meaning(self, path: str) -> str:
        stated = _MEANINGS.get(f"{self._kind}.{path}") or _description(self._schema, path.split("."))
        return re.split(r"(?<=\.) (?=[A-Z])", stated)[0].replace("\n", " ")


@cache
def _schema(kind: str) -> dict[str, Any]:
    return dict(build_file_schema(kind))


def _description(schema: dict[str, Any], path: list[str]) -> str:
    node: dict[str, Any] = schema
    for name in path:
        node = _resolve(schema, node)
        node = node["additionalProperties"] if name == "*" else node["properties"][name]
    stated: str = node.get("description") or _resolve(schema, node)["description"]
    return stated


def _resolve(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """Return the mapping or plain type that a node refers to, through alternatives and lists."""
    for inner in node.get("anyOf", ()):
        if "$ref" in inner:
            node = inner
    if "items" in node and "$ref" in node["items"]:
        node = node["items"]
    resolved: dict[str, Any] = schema["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    return resolved


def _quote(text: str) -> str:
    plain = _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT
    return text if plain else json.dumps(text, ensure_ascii=False)


def _listed(words: tuple[str, ...]) -> str:
    return f"[{', '.join(map(_quote, words))}]"


def starter_files(choices: StarterChoices) -> dict[str, str]:
    """Return the text of each file of :data:`FILE_NAMES`."""
    texts = (_clouds(choices), _limits(choices), _deploy(choices), _job(choices))
    return dict(zip(FILE_NAMES, texts, strict=True))


def _clouds(choices: StarterChoices) -> str:
    file = _Text("clouds", "Which clouds `stepfare prices refresh` asks, and how. No secret belongs here.")
    file.field("clouds")
    for cloud in choices.clouds:
        file.lines.append(f"  {cloud}:")
        file.field(f"clouds.{cloud}.enabled", "true")
        file.field(f"clouds.{cloud}.credentials", "false", used=False)
        file.field(f"clouds.{cloud}.regions", "[REGION]", used=False)
        file.field(f"clouds.{cloud}.options", "{NAME: VALUE}", used=False)
    for cloud in choices.other_clouds:
        file.lines.append(f"  {cloud}: {{enabled: false}}")
    file.field("refresh")
    file.field("refresh.time_limit", "5m")
    file.field("refresh.price_jump", "3")
    return file.text()


def _limits(choices: StarterChoices) -> str:
    cloud = choices.clouds[0]
    file = _Text("limits", "What all jobs share: clouds, quotas, reservations, budgets.")
    file.field("clouds", _listed(choices.clouds))
    file.field("default_cap_machines", "8")
    budgets = [
        f"- {{team: {_quote(team)}, budget: {json.dumps(f'${usd}')}}}" for team, usd in choices.teams.items() if usd
    ]
    examples = [f'- {{team: {_quote(team)}, budget: "$10000", spent: "$0"}}' for team in choices.teams]
    file.field("teams", "", *(budgets or examples), used=bool(budgets))
    gang = choices.accelerators[0].partition(":")[0]
    limit = f"- {{name: spot, cloud: {cloud}, accelerator: {gang}, market: spot, amount: 64, unit: accelerators}}"
    file.field("limits", "", limit, used=False)
    machine = f"- {{name: reserved, cloud: {cloud}, region: REGION, instance_type: MACHINE,"
    file.field("reservations", "", machine, '   machines: 1, usd_per_hour: "33.02"}', used=False)
    file.field("discounts", "", f"- {{cloud: {cloud}, market: on_demand, percent: 20}}", used=False)
    file.field("quotas", "latest", used=False)
    file.field("egress_month_to_date_gb", f"{{{cloud}: 0}}", used=False)
    file.field(
        "fair_share", "{shares: {" + ", ".join(f"{_quote(team)}: 1" for team in choices.teams) + "}}", used=False
    )
    file.field("carbon", '{usd_per_tonne: "0"}', used=False)
    return file.text()


def _deploy(choices: StarterChoices) -> str:
    file = _Text("deploy", "How `stepfare apply` makes machines. No secret belongs here.")
    file.field("state", "postgresql://stepfare@db.example.com/stepfare", used=False)
    file.field("engine", "/usr/local/bin/tofu", used=False)
    settings = 'settings: {bucket: example-states, region: eu-central-1, key: "stepfare/{attempt}", use_lockfile: true}'
    file.field("backend", "", "kind: s3", settings, used=False)
    address = ("listen: 0.0.0.0:7433", "url: https://stepfare.example.com:7433")
    pem = ("certificate: /etc/stepfare/tls.pem", "key: /etc/stepfare/tls.key")
    file.field("coordinator", "", *address, *pem, used=False)
    file.field("policy", "foresight")
    file.field("parallel", "4")
    file.field("approval_rules", "/etc/stepfare/approval.yaml", used=False)
    secrets = [f"{_quote(team)}: {{env: [HF_TOKEN]}}" for team in choices.teams]
    file.field("secrets", "", *secrets, used=False)
    file.field("timeouts", "{apply: 45m, lost: 10m}", used=False)
    file.field("notify", '{urls: ["env:STEPFARE_NOTIFY_URL"], events: [failed, late, budget]}', used=False)
    file.field("clouds")
    for cloud in choices.clouds:
        if cloud not in PROVISIONABLE_CLOUDS:
            continue
        file.lines.append(f"  {cloud}:")
        file.field(f"clouds.{cloud}.disk_gib", "200")
        file.field(f"clouds.{cloud}.checkpoint_url", "file:///mnt/checkpoints", used=False)
        file.field(f"clouds.{cloud}.image", "IMAGE", used=False)
        file.field(f"clouds.{cloud}.network", '{id: NETWORK, subnets: {"": SUBNET}}', used=False)
        file.field(f"clouds.{cloud}.local_nvme", "/mnt/scratch", used=False)
        file.field(f"clouds.{cloud}.regions", "{REGION: {image: IMAGE}}", used=False)
    return file.text()


def _job(choices: StarterChoices) -> str:
    file = _Text("job", "An example: a small transformer whose speed is estimated. Put your own in its place.")
    file.field("name", "example")
    file.field("team", _quote(next(iter(choices.teams))))
    file.field("project", "first-steps", used=False)
    file.field("steps", "2000")
    file.field("deadline", "+30h", used=False)
    file.field("budget", '"$200"', used=False)
    file.field("workload")
    file.field("workload.transformer")
    shape = ("parameters: 124e6", "layers: 12", "hidden: 768", "sequence_length: 1024", "tokens_per_step: 524288")
    file.lines += [f"    {line}" for line in shape]
    file.field("gang", f"{{accelerators: {_listed(choices.accelerators)}}}")
    file.field("checkpoint", "{size_gib: 2}")
    file.field("market", "{spot: never}", used=False)
    file.field("residency", f"{{allow: {_listed(choices.allow or ('EEA', 'UK'))}}}", used=bool(choices.allow))
    data = f'{{uri: "https://data.example.com/tokens", at: {choices.clouds[0]}/my-region, gib: 60}}'
    file.field("data", data, used=False)
    file.field("run")
    file.field("run.engine", "command")
    file.field("run.command", 'echo "rank $NODE_RANK of $NNODES"; sleep 2')
    file.field("run.image", "registry.example.com/team/train:1", used=False)
    file.field("run.env", '{HF_TOKEN: "secret:env:STEPFARE_JOB_HF_TOKEN"}', used=False)
    return file.text()
