"""The terms of a cost as text: where the money of a job, a team or a plan goes, and what the job file states of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pricing.money import Usd
from router.planning.document.cost_terms import add_terms
from router.planning.document.plan import Plan
from router.planning.document.plan_usage import JobCostTerms
from router.render.tables import PLAIN, Screen, format_table, format_usd, wrap_text

TERM_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "compute_usd": "steps that last",
        "lost_work_usd": "work lost to interruptions",
        "checkpoints_usd": "checkpoints",
        "restarts_usd": "restarts after interruptions",
        "startups_usd": "start-ups",
        "moves_usd": "moving data",
        "stream_usd": "streaming data",
        "idle_usd": "waiting for the whole gang",
        "fallback_usd": "fallback on demand, expected",
    }
)
_NARROWEST_NAME = 12
_FOOTNOTE = "* by values stated in the job file, which explain names"


@dataclass(frozen=True, slots=True)
class TermColumn:
    """A column of a table: its heading, the terms that it adds up, and its heading and label on a page."""

    heading: str
    terms: tuple[str, ...]
    title: str = ""
    label: str = ""

    def amount(self, terms: JobCostTerms) -> Usd:
        return Usd.total(getattr(terms, name) for name in self.terms)


#: Headings of columns of one term each.
TERM_HEADINGS: Mapping[str, str] = MappingProxyType(
    {
        "compute_usd": "COMPUTE",
        "lost_work_usd": "LOST WORK",
        "checkpoints_usd": "CHECKPOINTS",
        "restarts_usd": "RESTARTS",
        "startups_usd": "START-UPS",
        "idle_usd": "IDLE",
        "fallback_usd": "FALLBACK",
        "moves_usd": "MOVES",
        "stream_usd": "STREAM",
    }
)
_DETAILED = tuple(TermColumn(heading, (name,)) for name, heading in TERM_HEADINGS.items())
#: Columns that add up to the cost, in a narrow table and on the page of the plan.
SHORT_COLUMNS = (
    TermColumn("COMPUTE", ("compute_usd",), "Lasting steps", "lasting"),
    TermColumn("LOST", ("lost_work_usd",), "Lost work", "lost"),
    TermColumn("CKPT", ("checkpoints_usd",), "Checkpoints", "checkpoints"),
    TermColumn("STARTS", ("restarts_usd", "startups_usd"), "Starts", "starts"),
    TermColumn("IDLE", ("idle_usd",), "Idle", "idle"),
    TermColumn("FALLB", ("fallback_usd",), "Fallback", "fallback"),
    TermColumn("EGRESS", ("moves_usd", "stream_usd"), "Egress", "egress"),
)


def job_terms_text(plan: Plan, job: str) -> str:
    """Return the terms of one job's cost with what is stated of them; empty where the plan has none for it."""
    terms = next((t for t in plan.usage.cost_terms if t.job == job), None)
    if terms is None or not terms.together_usd.nanos:
        return ""
    whole = terms.together_usd.nanos
    lines = ["Where its cost goes"]
    for name, words in TERM_WORDS.items():
        usd: Usd = getattr(terms, name)
        if usd.nanos or _overridden(terms, (name,)):
            lines.append(
                wrap_text(f"{words} {format_usd(usd)} ({usd.nanos / whole:.1%}){describe_stated(terms, name)}", "  ")
            )
    return "\n".join(lines)


def describe_stated(terms: JobCostTerms, name: str) -> str:
    """Return what the job file states of a term, in words after its amount; empty where it states nothing."""
    stated = [f"{each.field} {each.value}" for each in terms.stated if each.term == name]
    return f"; stated in the job file: {', '.join(stated)}" if stated else ""


def _overridden(terms: JobCostTerms, names: Sequence[str]) -> bool:
    """Return whether the job file states a value of these terms that replaces a default or a model."""
    return any(each.term in names and not each.is_input for each in terms.stated)


def job_terms_table(plan: Plan, screen: Screen = PLAIN) -> str:
    """Return the terms of each placed job, as detailed as the screen is wide; empty where the plan has none."""
    found = plan.usage.cost_terms
    if not found:
        return ""
    rows = [*found, add_terms(found, "all")]
    wide, short = (_fill_rows("JOB", rows, columns, format_usd) for columns in (_DETAILED, SHORT_COLUMNS))
    filled = next((each for each in (wide, short) if _room(each, screen) >= _NARROWEST_NAME), None)
    filled = filled or _fill_rows("JOB", rows, SHORT_COLUMNS, lambda amount: f"${amount.dollars():,.0f}")
    header, *cells = filled
    widths = {"JOB": max(_room(filled, screen), _NARROWEST_NAME)}
    table = format_table(header, cells, frozenset(header[1:]), widths, screen)
    return f"{table}\n{_FOOTNOTE}" if any(_overridden(t, _ALL) for t in found) else table


def _fill_rows(
    first: str, rows: Sequence[JobCostTerms], columns: Sequence[TermColumn], format_amount: Callable[[Usd], str]
) -> list[tuple[str, ...]]:
    """Return header and rows with those columns in which any row has an amount."""
    shown = [column for column in columns if any(column.amount(row).nanos for row in rows)]
    header = (first, *(column.heading for column in shown), "COST")
    return [header, *(_cells(terms, shown, format_amount) for terms in rows)]


def _room(filled: Sequence[Sequence[str]], screen: Screen) -> int:
    """Return the width that the other columns leave to the first one."""
    sizes = [max(map(len, column)) for column in zip(*filled, strict=True)]
    return screen.width - sum(sizes[1:]) - (len(sizes) - 1)


_ALL = tuple(TERM_WORDS)


def team_terms_table(plan: Plan, screen: Screen = PLAIN) -> str:
    """Return the terms of the cost of each team and of the plan; empty where the plan has none."""
    found = {terms.job: terms for terms in plan.usage.cost_terms}
    if not found:
        return ""
    teams: dict[str, list[JobCostTerms]] = {}
    for job in plan.jobs:
        if job.job in found:
            teams.setdefault(job.team, []).append(found[job.job])
    rows = [add_terms(own, team) for team, own in sorted(teams.items())]
    rows.append(add_terms(tuple(found.values()), "all"))
    header, *cells = _fill_rows("TEAM", rows, _DETAILED, format_usd)
    return format_table(header, cells, frozenset(header[1:]), {}, screen)


def _cells(terms: JobCostTerms, columns: Sequence[TermColumn], format_amount: Callable[[Usd], str]) -> tuple[str, ...]:
    """Return a row; an amount that rests on a stated value has a star before it."""
    cells = [terms.job]
    for column in columns:
        amount, mark = column.amount(terms), "*" if _overridden(terms, column.terms) else ""
        cells.append(mark + format_amount(amount) if amount.nanos else "")
    return (*cells, format_amount(terms.together_usd))
