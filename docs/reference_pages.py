"""Write docs/job-file.md, docs/limits-file.md and docs/deploy-file.md from the JSON Schemas in docs/schema.

    python -m docs.reference_pages

Run it after a schema changes; a test compares the pages with what this module renders.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).resolve().parent
_WORDS: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "mapping",
    "array": "list",
    "null": "nothing",
}
_MOST_EXAMPLES: Final = 3
_LARGE: Final = 1e6
#: Meanings of fields whose schema states none: by page, then by field. A description in the schema wins.
_MEANINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "job": {
        "project": "Project that the cost is reported under.",
        "owner": "Person to ask about the job.",
        "cost_center": "Cost center that the cost is reported under.",
        "labels": "Names and values of your own; costs can be grouped by them (`showback --group-by label:NAME`).",
        "steps_done": "Steps that are trained and saved.",
        "cloud": "Cloud in which it runs.",
        "region": "Region in which it runs.",
        "zone": "Zone in which it runs.",
        "instance_type": "Machine type on which it runs.",
        "accelerators": "How many accelerators it runs on.",
        "accelerator": "Name as in `stepfare offers`.",
        "steps_per_hour": "Measured speed of the gang.",
        "fabric": "Network between the machines when the speed was measured.",
        "relative_error": "Standard deviation of the speed, as a share of it.",
        "same_zone": "Whether all machines of the gang must be in one zone.",
        "spot": "Whether spot machines may be used.",
        "uri": "Address of the data.",
        "mode": "Copied before the start, or read during the training.",
        "allow": "Clouds, regions, countries or groups (EU, EEA, UK) in which the job may run.",
        "deny": "The same, in which it must not run.",
        "image": "Container image.",
        "command": "Command that every machine runs.",
        "env": "Environment variables; secrets as `secret:env:NAME` or `secret:file:PATH`.",
        "engine": "How the command is started on the machines.",
        "git": "URL of a git repository.",
        "layers": "Number of layers.",
        "hidden": "Width of the hidden state.",
        "sequence_length": "Tokens of a sequence.",
        "precision": "Number format of the matrix products.",
        "recompute": "How many activations are computed again in the backward pass.",
        "lora": "Whether only adapters are trained.",
        "sharding": "What is sharded over the gang.",
        "causal": "Whether attention looks back only.",
    },
    "limits": {
        "name": "Name of the reservation, as plans show it.",
        "cloud": "Cloud.",
        "region": "Region.",
        "zone": "Zone.",
        "family": "Machine family.",
        "instance_type": "Machine type.",
        "accelerator": "Accelerator, as in `stepfare offers`.",
        "machines": "How many machines are reserved.",
        "team": "Team, as in the job files.",
    },
    "deploy": {
        "clouds": "Settings of each cloud, by its name.",
        "kind": "Backend of Terraform: local, s3, gcs, azurerm, http or pg.",
        "settings": "Settings of the backend; `{attempt}` is replaced by the attempt's name.",
        "disk_gib": "Size of the root disk in GiB.",
        "ssh_public_key": "azure: key that the machines accept.",
        "regions": "What differs from region to region, by region.",
        "image": "Machine image in this region.",
        "checkpoint_bucket": "What machines of this region may read and write.",
        "checkpoint_url": "Checkpoint store of this region.",
        "data_url": "Where data are copied for jobs of this region.",
        "interruption_queue": "aws: URL of this region's SQS queue.",
        "id": "Identifier that the cloud gave it.",
        "region": "Region of the reservation.",
        "zone": "Zone of the reservation.",
        "instance_type": "Machine type of the reservation.",
        "user": "User to log in as.",
        "port": "Port of the SSH server.",
    },
}


@dataclass(frozen=True)
class Page:
    """One reference page: its file, its title, and the text that stands before the tables."""

    kind: str
    title: str
    introduction: str

    @property
    def path(self) -> Path:
        """Return the file of the page."""
        return DOCS / f"{self.kind}-file.md"

    def text(self) -> str:
        """Return the whole page as Markdown."""
        schema = json.loads((DOCS / "schema" / f"{self.kind}.json").read_text(encoding="utf-8"))
        sections = "\n".join(_sections(schema, _MEANINGS[self.kind]))
        return (
            f"# {self.title}\n\n{self.introduction.strip()}\n\n{sections}\n"
            f"Generated from [schema/{self.kind}.json](schema/{self.kind}.json) by `python -m docs.reference_pages`.\n"
        )


PAGES: Final = (
    Page(
        "job",
        "The job file",
        """
A job file describes one training job: who pays, how many steps, by when, how fast it runs on which accelerators, and
what to start. It is YAML; a file may hold several jobs, separated by `---`. The smallest useful one:

```yaml job
name: llama2-7b-sft-chat
team: research
steps: 100000
workload:
  profile: {accelerators: "H100:8", steps_per_hour: 5000}
gang: {accelerators: "H100:8"}
```

One with a deadline, checkpoints, data and residency:

```yaml job
# yaml-language-server: $schema=docs/schema/job.json
name: contracts-sft
team: legal
project: contracts
steps: 16000
deadline: +30h                    # or a moment: 2026-11-25T09:00Z
confidence: 0.95                  # how sure the deadline must hold
budget: "$210"
workload:
  profile:
    - {accelerators: "H100:8", tokens_per_second: 81408, tokens_per_step: 131072, source: last week's run}
gang: {accelerators: {H100: [8, 16], A100-80GB: 16}}
checkpoint: {size_gib: 170, write_gib_per_s: 4.0, asynchronous: true}
data: {uri: "s3://contracts/text", at: azure/uksouth, gib: 60}
residency: {allow: [UK, EEA]}
run:
  image: registry.example.com/legal/nemo:24.07
  command: torchrun sft.py --resume
  env: {HF_TOKEN: "secret:env:STEPFARE_JOB_HF_TOKEN"}
```

- `stepfare validate job.yaml` names every mistake with file, line and column.
- `stepfare schema job --out job.schema.json` writes the schema for an editor.
- `stepfare import sky task.yaml` turns a SkyPilot task into a job; `import slurm` and `import k8s` read scripts for
  sbatch, PyTorchJobs and JobSets ([what is carried](guides/job-owner.md#from-another-tool)).
- [examples/nightly](../examples/README.md) has 24 jobs with published speeds.
- The guide for job owners is [guides/job-owner.md](guides/job-owner.md).
""",
    ),
    Page(
        "limits",
        "The limits file",
        """
A limits file says what all jobs of a plan share: quotas, reservations, discounts, team budgets, and which clouds may be
used. Everything in it is optional. `stepfare plan`, `quote` and `apply` read the file that `--limits` names. A file
called `limits.yaml` may be in the folder of the jobs, but is used only when it is named.

```yaml limits
# yaml-language-server: $schema=docs/schema/limits.json
clouds: [aws, gcp, azure]
default_cap_machines: 8
limits:
  - {name: p5 spot, cloud: aws, region: us-east-1, family: p5, market: spot, amount: 768, unit: vcpus}
reservations:
  - name: p5 until June
    cloud: aws
    region: us-east-1
    instance_type: p5.48xlarge
    machines: 1
    until: 2027-06-01T00:00Z
    usd_per_hour: "33.02"
discounts:
  - {cloud: gcp, family: a2, market: on_demand, percent: 20}
commitments:
  - {name: savings plan, cloud: aws, usd_per_hour: "40", discount: 0.27, until: 2027-12-01T00:00Z}
teams:
  - {team: research, budget: "$12000", spent: "$7450"}
egress_month_to_date_gb: {aws: 9900}
```

- `stepfare quotas` reads and stores the quotas and reservations that your accounts have; `quotas: latest`, or
  `plan --quotas latest`, counts them beside this file ([quotas](design/rules-of-the-plan.md#quotas-in-the-plan)).
  `stepfare quotas -o limits --out limits.yaml` writes them as such a file, to edit.
- `stepfare validate jobs/` checks the limits file beside the jobs too.
- Monthly budgets that are shared by all users of a state are set with `stepfare budget set` ([budgets.md](budgets.md)).
- [examples/nightly/limits.yaml](../examples/nightly/limits.yaml) is a longer example.
""",
    ),
    Page(
        "deploy",
        "The deploy file",
        """
The deploy file says how machines are made: where the state and Terraform's states are stored, how machines reach the
coordinator, how long to wait for what, whom to notify, and the settings of each cloud. It is `deploy.yaml` in
`STEPFARE_HOME`, or the file named by `--deploy` or `STEPFARE_DEPLOY`. Everything in it is optional. No secret belongs
in it: clouds take credentials from their own places, other secrets are named by environment variable.

```yaml deploy
# yaml-language-server: $schema=docs/schema/deploy.json
state: postgresql://stepfare@db.example.com/stepfare
coordinator:
  listen: 0.0.0.0:7433
  url: https://stepfare.example.com:7433
  certificate: /etc/stepfare/tls.pem
  key: /etc/stepfare/tls.key
policy: foresight
notify:
  urls: [env:SLACK_URL]
console:
  hosts: [stepfare.example.com]
  tokens: true
  behind_proxy: true
  trusted_proxies: [10.0.0.5]
clouds:
  aws:
    checkpoint_url: s3://example-checkpoints/stepfare
    regions:
      us-east-1:
        network: {id: vpc-0123456789abcdef0, subnets: {us-east-1a: subnet-0123456789abcdef0}}
```

- `engine` is the path of `terraform` or `tofu`. Without it stepfare takes the one on the PATH, else the engine of the
  extra `embedded`.
- [examples/pool/deploy.yaml](../examples/pool/deploy.yaml) shows every field once.
- [console.md](console.md) says who may see what in the console.
- [accounts.md](accounts.md) has a file for each cloud, with the permissions that it needs.
- `stepfare schema deploy --out deploy.schema.json` writes the schema for an editor.
""",
    ),
)


def _sections(schema: Mapping[str, Any], words: Mapping[str, str]) -> Iterator[str]:
    """Yield the tables: the file's own fields first, then each nested mapping once, in the order of first use."""
    definitions = schema.get("$defs", {})
    paths: dict[str, str] = {}
    for name, path in _nested(schema, definitions, ""):
        paths.setdefault(name, path)
    yield f"## All fields\n\n{schema['description']}\n\n{_table(schema, definitions, paths, words)}"
    for name, path in paths.items():
        table = _table(definitions[name], definitions, paths, words)
        yield f"## {path}\n\n{definitions[name].get('description', '')}\n\n{table}"


def _nested(node: Mapping[str, Any], definitions: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield each mapping that the fields of a node refer to, each followed by its own; a name may come twice."""
    for field, value in node.get("properties", {}).items():
        for name, suffix in _references(value):
            if "enum" not in definitions[name]:
                yield name, f"{prefix}{field}{suffix}"
                yield from _nested(definitions[name], definitions, f"{prefix}{field}{suffix}.")


def _references(node: Any, suffix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the definitions that a field's schema refers to, and how its path goes on (`[]`, `.NAME`)."""
    if "$ref" in node:
        yield node["$ref"].rsplit("/", 1)[1], suffix
    for part in node.get("anyOf", ()):
        yield from _references(part, suffix)
    if "items" in node:
        yield from _references(node["items"], f"{suffix}[]")
    if isinstance(node.get("additionalProperties"), dict):
        yield from _references(node["additionalProperties"], f"{suffix}.NAME")


def _table(
    node: Mapping[str, Any], definitions: Mapping[str, Any], paths: Mapping[str, str], words: Mapping[str, str]
) -> str:
    """Return the table of a mapping's fields, and below it which of them exclude or need each other."""
    rows = ["| field | type | default | meaning | examples |", "| --- | --- | --- | --- | --- |"]
    required = set(node.get("required", ()))
    for field, value in node.get("properties", {}).items():
        default = "**required**" if field in required else _default(value)
        meaning = _meaning(value, definitions) or words.get(field, "")
        cells = (f"`{field}`", _type(value, definitions, paths), default, meaning, _examples(value))
        rows.append(f"| {' | '.join(cells)} |".replace("  ", " "))
    return "\n".join([*rows, "", *(f"{line}\n" for line in _choices(node))])


def _choices(node: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each group of fields of which one, or at least one, is needed."""
    for word, how in (("oneOf", "Exactly one"), ("anyOf", "At least one")):
        groups = [part["required"] for part in node.get(word, ()) if set(part) == {"required"}]
        if groups:
            yield f"{how} is required: {', '.join(' with '.join(f'`{name}`' for name in group) for group in groups)}."
    for part in node.get("allOf", ()):
        yield from _choices(part)


def _type(node: Mapping[str, Any], definitions: Mapping[str, Any], paths: Mapping[str, str]) -> str:
    """Return the type of a field in words, with a link where it is a mapping with fields of its own."""
    if "$ref" in node:
        name = node["$ref"].rsplit("/", 1)[1]
        if "enum" in definitions[name]:
            return _enumeration(definitions[name]["enum"])
        return f"[mapping](#{_anchor(paths[name])})"
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return _enumeration(node["enum"])
    if "anyOf" in node and not all(set(part) == {"required"} for part in node["anyOf"]):
        words = [_type(part, definitions, paths) for part in node["anyOf"] if part.get("type") != "null"]
        return ", or ".join(dict.fromkeys(words))
    kinds = node.get("type", "object")
    if isinstance(kinds, list):
        return " or ".join(_WORDS[kind] for kind in kinds)
    if kinds == "array":
        return f"list of {_type(node['items'], definitions, paths)}"
    if kinds == "object" and isinstance(node.get("additionalProperties"), dict):
        return f"mapping of names to {_type(node['additionalProperties'], definitions, paths)}"
    return _WORDS[kinds] + _range(node)


def _range(node: Mapping[str, Any]) -> str:
    """Return the bounds of a number, with a leading comma; empty where there is none."""
    lower, above = node.get("minimum"), node.get("exclusiveMinimum")
    upper, below = node.get("maximum"), node.get("exclusiveMaximum")
    bounds = []
    if lower is not None:
        bounds.append(f"at least {lower:,}")
    elif above is not None:
        bounds.append(f"above {above:,}")
    if upper is not None:
        bounds.append(f"at most {upper:,}")
    elif below is not None:
        bounds.append(f"below {below:,}")
    return "".join(f", {bound}" for bound in bounds)


def _enumeration(values: list[str]) -> str:
    return "one of " + ", ".join(f"`{value}`" for value in values)


def _default(node: Mapping[str, Any]) -> str:
    value = node.get("default")
    if value is None or value == "":
        return "-"
    if isinstance(value, dict):
        return "defaults below" if value else "-"
    return _code(value)


def _meaning(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return the field's description, else that of one of its types, else that of the mapping it refers to."""
    if "description" in node:
        return _cell(node["description"])
    for part in (*node.get("anyOf", ()), node.get("items", {}), node):
        if "description" in part:
            return _cell(part["description"])
        if "$ref" in part:
            text = definitions[part["$ref"].rsplit("/", 1)[1]].get("description", "")
            return _cell(text.split(". ")[0].rstrip(".") + "." if text else "")
    return ""


def _examples(node: Mapping[str, Any]) -> str:
    found = list(node.get("examples", ()))
    for part in (*node.get("anyOf", ()), node.get("items", {})):
        found += [example for example in part.get("examples", ()) if example not in found]
    return ", ".join(_code(example) for example in found[:_MOST_EXAMPLES])


def _code(value: Any) -> str:
    if isinstance(value, float) and value >= _LARGE:
        return f"`{value:.0e}`".replace("e+0", "e")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _cell(f"`{text}`")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").strip()


def _anchor(heading: str) -> str:
    """Return the anchor of a heading, as Markdown renderers make it."""
    kept = "".join(letter for letter in heading.lower() if letter.isalnum() or letter in "_- ")
    return kept.strip().replace(" ", "-")


def main() -> None:
    """Write all pages."""
    for page in PAGES:
        page.path.write_text(page.text(), encoding="utf-8")


if __name__ == "__main__":
    main()
