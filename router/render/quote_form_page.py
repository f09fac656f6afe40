"""Draw the form that asks for a quote, and the progress of the work on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pricing.problems import Problem
from router.quotes.quote import LimitsPlan
from router.render.page_frame import PageFrame
from router.render.pages import fill_template

# The choice of limits that are written in the form.
OWN = "own"

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

    ``again`` is the id of a quote whose job is asked for again; ``deadline`` is what the form begins with.
    ``limits_plan`` is the last plan, whose limits count by default; None where none was made.
    """

    deadline: str
    now: datetime
    values: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    jobs: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    again: str = ""
    again_job: str = ""
    limits_plan: LimitsPlan | None = None

    def value(self, name: str, default: str = "") -> str:
        """Return what was written in a field."""
        return self.values.get(name, default)


@dataclass(frozen=True, slots=True)
class QuoteProgressView:
    """The progress of the work on a quote; ``refused`` is why there is none, and what helps."""

    title: str
    url: str
    state: str
    is_final: bool
    events: tuple[tuple[datetime, str], ...]
    asked_at: datetime
    message: str = ""
    refused: tuple[str, str] | None = None
    answers_url: str = ""


def quote_form_page(view: QuoteFormView, frame: PageFrame) -> str:
    """Return the form as HTML."""
    return fill_template("quote_form.html", frame=frame, page=view, models=tuple(MODELS))


def quote_progress_page(view: QuoteProgressView, frame: PageFrame) -> str:
    """Return the progress as HTML; it shows itself again until the work has ended."""
    return fill_template("quote_progress.html", frame=frame, page=view)


def job_of_fields(fields: Mapping[str, str]) -> str:
    """Return a job in YAML of the small form's fields; what is wrong in it the reader of jobs says."""
    import json

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
    """Return a number as it stands, anything else as quoted text, so that it cannot add lines."""
    import json

    short = text.strip().replace(",", "")
    return short if short.isascii() and short.isdigit() else json.dumps(text.strip())
