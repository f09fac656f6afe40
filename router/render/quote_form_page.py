"""Draw the form that asks for a quote."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pricing.problems import Problem
from router.quotes.quote import LimitsPlan
from router.render.pages import PageFrame, fill_template

# The choice of limits that are written in the form.
OWN = "own"

# The fields that a problem may stand beside, as the form names them, in its order.
FIELD_TITLES: Mapping[str, str] = {
    "source": "The job", "again": "The job of the quote", "job": "Name", "document": "The job, YAML",
    "file": "Its file", "name": "Name", "team": "Team", "steps": "Steps", "tokens": "Tokens a step",
    "accelerators": "Accelerators", "at": "Done by", "within": "Within", "own_deadline": "The job’s own deadline",
    "limits_of": "Under which limits", "limits": "Limits, YAML",
}  # fmt: skip
# The fields that stand below a choice of a group.
_PANELS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("source", "again"): ("again",),
    ("source", "job"): ("job",),
    ("source", "document"): ("document", "file"),
    ("source", "fields"): ("name", "team", "steps", "tokens", "accelerators"),
    ("when", "at"): ("at",),
    ("when", "within"): ("within",),
    ("when", OWN): ("own_deadline",),
    ("limits_of", OWN): ("limits",),
}
# A problem may name another place in the same text.
_IN_A_FILE = re.compile(r"\b(?:job|limits)\.yaml:(\d+)(?::\d+)?")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
# Where the fields of the small form stand in the job that is made of them.
_JOB_FIELDS: Mapping[str, str] = {
    "name": "name",
    "team": "team",
    "steps": "steps",
    "workload.transformer.tokens_per_step": "tokens",
    "gang.accelerators": "accelerators",
}

# Public shapes of models: parameters, layers, width, length of a sequence.
MODELS: Mapping[str, tuple[str, int, int, int]] = {
    "Llama 3 8B": ("8.03e9", 32, 4096, 8192),
    "Llama 3 70B": ("70.6e9", 80, 8192, 8192),
    "Llama 2 7B": ("6.74e9", 32, 4096, 4096),
    "Llama 2 13B": ("13.0e9", 40, 5120, 4096),
    "Llama 2 70B": ("69.0e9", 80, 8192, 4096),
}


@dataclass(frozen=True, slots=True)
class QuoteFormView:
    """The form: what was written in it, what is wrong with that, and what may be chosen.

    ``problems`` has sentences by the name of the field: see :func:`problems_by_field`. ``again`` is the id of a quote
    whose job is asked for again; ``deadline`` is what the form begins with.
    ``limits_plan`` is the last plan, whose limits count by default; None where none was made.
    """

    deadline: str
    now: datetime
    values: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    jobs: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    again: str = ""
    again_job: str = ""
    limits_plan: LimitsPlan | None = None

    def value(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)

    def chosen(self, group: str) -> str:
        """Return what is chosen in a group of choices: as it was sent, else what most people want."""
        usual = {
            "source": "again" if self.again else "job" if self.jobs or self.value("job") else "fields",
            "when": "at",
            "limits_of": "last",
        }
        wanted = self.value(group, usual[group])
        return usual[group] if wanted == "quote" and not self.again else wanted

    def has_problem_in(self, group: str, choice: str) -> bool:
        """Return whether a field below a choice is to be put right, so that it has to be seen."""
        return any(name in self.problems for name in _PANELS.get((group, choice), ()))


def quote_form_page(view: QuoteFormView, frame: PageFrame) -> str:
    """Return the form as HTML."""
    return fill_template("quote_form.html", frame=frame, page=view, models=tuple(MODELS), titles=FIELD_TITLES)


def problems_by_field(problems: Iterable[Problem], values: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return sentences on problems by the field of the form that they stand beside, in the form's order.

    ``values`` is what was sent. Lines are those of a text field; a file that was made of small fields has none.
    """
    found: dict[str, list[str]] = {}
    for problem in problems:
        name = _field_of(problem, values)
        is_small = values.get("source") == "fields" and name in _JOB_FIELDS.values()
        line = "" if is_small or name not in ("document", "limits") else _line_of(problem)
        path = "" if not problem.where or (problem.field in _JOB_FIELDS and is_small) else problem.field
        if (is_small or name in ("job", "document")) and not values.get(name, "").strip():
            words = "is empty"
        else:
            words = problem.sentence
        found.setdefault(name, []).append(_IN_A_FILE.sub(r"line \1", ": ".join(filter(None, (line, path, words)))))
    return {name: tuple(found[name]) for name in FIELD_TITLES if name in found}


def _field_of(problem: Problem, values: Mapping[str, str]) -> str:
    """Return the field of the form that a problem of its question stands beside."""
    source = values.get("source", "")
    if problem.where.startswith("limits.yaml") or problem.field == "limits":
        return "limits"
    if problem.field == "by":
        when = values.get("when", "") or ("within" if values.get("within") else "at")
        return {"within": "within", "own": "own_deadline"}.get(when, "at")
    if not problem.where and problem.field in FIELD_TITLES and problem.field != "job":
        return problem.field
    if source == "fields":
        return _JOB_FIELDS.get(problem.field, "name")
    return source if source in ("again", "job", "document") else "source"


def _line_of(problem: Problem) -> str:
    """Return the line of a problem in the text that it is in, such as ``Line 3``; "" where none is known."""
    _, _, place = problem.where.partition(":")
    return f"Line {place.partition(':')[0]}" if place else ""


def job_of_fields(fields: Mapping[str, str]) -> str:
    """Return a job in YAML of the small form's fields; what is wrong in it the reader of jobs says."""
    parameters, layers, hidden, sequence = MODELS.get(fields.get("model", ""), MODELS["Llama 3 8B"])
    written = {name: json.dumps(text.strip()) for name, text in fields.items()}
    lines = [
        f"name: {written.get('name', '')}",
        f"team: {written.get('team', '')}",
        f"steps: {_bare(fields.get('steps', ''))}",
        "workload:",
        "  transformer:",
        f"    parameters: {parameters}",
        f"    layers: {layers}",
        f"    hidden: {hidden}",
        f"    sequence_length: {sequence}",
        f"    tokens_per_step: {_bare(fields.get('tokens', ''))}",
        f"gang: {{accelerators: {json.dumps(fields.get('accelerators', '').strip())}}}",
        "checkpoint: {optimizer: adam}",
    ]
    return "\n".join(lines) + "\n"


def _bare(text: str) -> str:
    """Return a number as it stands, signed or not; anything else as quoted text, so that it cannot add lines."""
    short = text.strip().replace(",", "")
    return short if _NUMBER.fullmatch(short) else json.dumps(text.strip())
