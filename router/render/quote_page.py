"""Draw the pages of quotes: the answer, other deadlines and how sure it is; the form that asks; arrange their list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import urlencode

from markupsafe import Markup

from pricing.money import Usd
from pricing.problems import Problem
from router.config.plan_files import QuoteAcceptance, StoredQuote
from router.quotes.curve import DeadlineFigure
from router.quotes.quote import LimitsPlan, Quote, Refused
from router.render.drawing import in_widths
from router.render.figures import chance, day_clock, hours, money
from router.render.pages import PageFrame, fill_template
from router.render.quote_pictures import (
    CURVES,
    SPREADS,
    STRIPS,
    draw_alternative,
    draw_curve,
    draw_run,
    draw_share,
    draw_spread,
    most_shown,
)
from router.render.quote_view import (
    cost_words,
    difference_of,
    driver_name,
    interval_of_runs,
    market_words,
    place_words,
    quotes_view,
    share_words,
)


@dataclass(frozen=True, slots=True)
class AcceptanceRefusal:
    """Why a quote was not accepted, in sentences that belong beside a ``field``; the ceiling as it was written."""

    field: str
    written: str
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QuoteActions:
    """The forms on the page of one quote: another deadline, and to accept it.

    ``figure`` is what ``deadline`` costs by the quote's curve, None before its earliest point. ``is_stale``: the quote
    is too old to be accepted. ``refusal``: of the acceptance just asked for. ``wrong_deadline`` has sentences on a
    deadline that cannot be read; ``is_chosen``: somebody chose ``deadline``.
    """

    deadline: datetime
    figure: DeadlineFigure | None
    may_ask: bool
    may_accept: bool
    is_stale: bool
    acceptance: QuoteAcceptance | None
    refusal: AcceptanceRefusal | None = None
    wrong_deadline: tuple[str, ...] = ()
    is_chosen: bool = False

    @property
    def problems(self) -> Mapping[str, tuple[str, ...]]:
        refused = {} if self.refusal is None else {self.refusal.field: self.refusal.problems}
        return {name: words for name, words in {**refused, "by": self.wrong_deadline}.items() if words}

    @property
    def price(self) -> str:
        """Return the expected cost of the other deadline in words; ``~`` where it was not simulated itself."""
        if self.figure is None:
            return "not possible"
        if self.figure.mean is None:
            return "not known"
        mark = "" if self.figure.is_exact else "~"
        return f"{'at most ' if self.is_beyond else ''}{mark}{money(self.figure.mean)}"

    @property
    def is_beyond(self) -> bool:
        return self.figure is not None and self.figure.after is None and not self.figure.is_exact

    def details(self, quote: Quote) -> str:
        """Return how sure the other deadline is, and from which points that is read."""
        figure = self.figure
        if figure is None:
            return f"the fastest place is done by {day_clock(quote.earliest)} at the earliest"
        mark = "" if figure.is_exact else "~"
        most = "" if figure.p90 is None else f"9 of 10 up to {mark}{money(figure.p90)}, "
        likely = chance(figure.on_time)
        known = f"{most}on time {likely if likely.startswith('>') else mark + likely}"
        if figure.is_exact:
            return f"{known}; simulated"
        if figure.after is None:
            return f"{known}; later than every simulated deadline, and more time never costs more"
        first, last = figure.before, figure.after
        return (
            f"{known}; on the line from {day_clock(first.deadline)} ({cost_words(first.mean)}) to "
            f"{day_clock(last.deadline)} ({cost_words(last.mean)})"
        )


def quotes_page(
    quotes: Sequence[tuple[str, Quote]],
    refused: Sequence[Refused] = (),
    frame: PageFrame | None = None,
    actions: QuoteActions | None = None,
) -> str:
    """Return the page of quotes, each with its id, as HTML; the same quotes give the same bytes.

    ``refused`` are the jobs of the same command that could not be quoted: they are named with the reason. The console
    gives a ``frame``, and ``actions`` for the page of one quote.
    """
    return fill_template(
        "quote.html",
        frame=frame,
        actions=actions,
        page=quotes_view(quotes, refused),
        draw={
            "curve": lambda view: in_widths(lambda layout: draw_curve(view.quote, layout), CURVES),
            "spread": lambda view: in_widths(lambda layout: draw_spread(view, layout), SPREADS),
            "run": lambda view: in_widths(lambda layout: draw_run(view, layout), STRIPS),
            "alternative": lambda view, row: Markup(draw_alternative(row, most_shown(view.alternatives))),
            "share": lambda driver: Markup(draw_share(driver)),
            "most": lambda view: cost_words(most_shown(view.alternatives)),
            "cost": cost_words,
            "driver_name": driver_name,
            "difference": difference_of,
            "hours": hours,
            "interval": interval_of_runs,
            "market_words": market_words,
            "place_words": place_words,
            "share_words": share_words,
        },
    )


# Rows on the page of a job; the list has the rest.
MOST_ON_JOB_PAGE = 5


@dataclass(frozen=True, slots=True)
class QuoteListView:
    """The list as it is shown; ``next_url`` leads to more quotes, "" where there are none.

    ``is_damaged``: a stored quote cannot be read, so there are no rows.
    """

    rows: tuple[StoredQuote, ...]
    now: datetime
    job: str = ""
    next_url: str = ""
    may_ask: bool = False
    is_damaged: bool = False

    @property
    def accepted(self) -> int:
        return sum(row.acceptance is not None for row in self.rows)

    @property
    def open(self) -> int:
        return sum(row.acceptance is None and row.quote.valid_until >= self.now for row in self.rows)

    @property
    def accepted_usd(self) -> Usd:
        """Return the expected cost of the accepted ones that have an end."""
        accepted = (row.quote.usd.mean for row in self.rows if row.acceptance is not None)
        return Usd.total(usd for usd in accepted if usd is not None)


def job_quotes_view(quotes: Sequence[StoredQuote] | None, now: datetime, job: str) -> QuoteListView | None:
    """Return what the page of a job shows of its quotes; None if it has none.

    ``quotes`` is None if one of them cannot be read.
    """
    if quotes is None:
        return QuoteListView((), now, job, "/quotes", is_damaged=True)
    url = f"/quotes?{urlencode({'job': job})}" if len(quotes) > MOST_ON_JOB_PAGE else ""
    return QuoteListView(tuple(quotes[:MOST_ON_JOB_PAGE]), now, job, url) if quotes else None


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
