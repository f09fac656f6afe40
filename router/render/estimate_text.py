"""Write estimates as text: a table of 80 columns, one of all fields, CSV, flags of launchers. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from pricing.money import Usd
from pricing.units import format_count
from router.files.csv_text import records_csv
from router.jobs.layouts import ChosenLayout
from router.planning.document.plan_usage import COST_TERMS, JobCostTerms
from router.planning.estimate.estimate_json import launcher_of
from router.planning.estimate.gang_estimates import GangAnswer, GangEstimate, JobEstimate, Span, UsdSpan
from router.render.cost_terms_text import TERM_WORDS
from router.render.explain_text import DROPPED_WORDS
from router.render.tables import (
    MARKETS,
    PLAIN,
    WIDTH,
    Screen,
    format_step_price,
    format_table,
    format_usd,
    wrap_text,
)

MEMORY_WORDS: Final = {
    "states": "weights, gradients and optimizer states",
    "activations": "activations",
    "logits": "logits",
}
#: Heads of the cost terms, in the order of their fields.
TERM_COLUMNS: Final = (
    "COMPUTE",
    "LOST WORK",
    "CHECKPOINTS",
    "RESTARTS",
    "START-UPS",
    "MOVES",
    "STREAM",
    "IDLE",
    "FALLBACK",
)
_PLACE_WIDTHS: Final = (20, 17, 14, 11, 8)
_UNKNOWN: Final = "-"
_RIGHT: Final = frozenset({"STEPS/H", "RUNS", "TOKENS/S", "$/STEP", "$/1M TOKENS (80 %)", "$/STEP (80 %)", "N", "COST"})

_RUNS: Final = (
    "STEPS/H and TOKENS/S are those while it runs; RUNS is the share of the time in which it does, without waits for "
    "machines, starts, saves and work lost"
)


def table(estimate: JobEstimate, screen: Screen = PLAIN) -> str:
    """Return gangs side by side, details of each, the cost terms of the cheapest, and gangs without an answer."""
    parts = []
    answered = [(row, row.answer) for row in estimate.rows if row.answer is not None]
    if answered:
        parts.append(f"{_main_table(estimate, screen)}\n\n{wrap_text(_RUNS, width=max(WIDTH, screen.width))}")
        parts.append("\n".join(_behind(row, answer, screen) for row, answer in answered))
        parts.append(_best_terms(answered[0][0], answered[0][1], screen))
    parts += _without_answer(estimate, screen)
    return "\n\n".join(parts) + "\n"


def wide(estimate: JobEstimate, screen: Screen = PLAIN) -> str:
    """Return a table of all figures, as wide as needed; gangs without an answer are rows with the reason."""
    header = (
        "GANG",
        "MARKET",
        "PLACE",
        "MACHINES",
        "LAYOUT",
        "STEPS/H WHILE IT RUNS",
        "RUNS",
        "STEPS/H IN ALL (80 %)",
        "TOKENS/S IN ALL (80 %)",
        "$/STEP (80 %)",
        *(f"$ {words}" for words in TERM_COLUMNS),
        "$/1M TOKENS (80 %)",
        "COST",
        "LARGEST PART",
        "GIB OF USABLE",
        "SPEED",
        "NO ANSWER BECAUSE",
    )
    rows = [_wide_row(row) for row in estimate.rows]
    right = frozenset(
        name for name in header if name.startswith(("$", "STEPS/H", "TOKENS/S")) or name in {"RUNS", "COST"}
    )
    return format_table(header, rows, right, {}, screen) + "\n"


CSV_FIELDS: Final = (
    "gang",
    "market",
    "cloud",
    "region",
    "zone",
    "instance_type",
    "machines",
    "usd_per_hour",
    "steps_per_hour",
    "steps_per_hour_low",
    "steps_per_hour_high",
    "nominal_steps_per_hour",
    "running_share",
    "tokens_per_s",
    "tokens_per_s_low",
    "tokens_per_s_high",
    "usd_per_step",
    "usd_per_step_low",
    "usd_per_step_high",
    *COST_TERMS,
    "usd_per_million_tokens",
    "usd_per_million_tokens_low",
    "usd_per_million_tokens_high",
    "steps",
    "cost_usd",
    "tensor_parallel",
    "pipeline_parallel",
    "context_parallel",
    "expert_parallel",
    "data_parallel",
    "micro_batch",
    "accumulation",
    "recompute",
    "sharding",
    "largest_part",
    "memory_gib",
    "usable_gib",
    "memory_fits",
    "speed_basis",
    "risk_basis",
    "weak",
    "refusal_code",
    "refusal",
)


def as_csv(estimate: JobEstimate) -> str:
    """Return CSV with one row for each gang and market; what is unknown is blank. Terms are dollars of a step."""
    rows = ({**_csv_question(row), **({} if row.answer is None else _csv_answer(row.answer))} for row in estimate.rows)
    return records_csv(CSV_FIELDS, rows)


def launcher_text(row: GangEstimate, launcher: str) -> str | None:
    """Return the layout of a row as a launcher reads it, after a comment that names the gang; None if not known."""
    flags = launcher_of(row)
    if flags is None or row.answer is None:
        return None
    head = f"# {launcher}: {row.name} on {row.answer.place}"
    if launcher == "torchrun":
        return f"{head}\n{' '.join(flags.torchrun)}"
    if launcher == "megatron":
        return None if flags.megatron is None else f"{head}\n{' '.join(flags.megatron)}"
    if flags.deepspeed is None or row.layout is None:
        return None
    layout = row.layout.layout
    sizes = {"tensor": layout.tensor, "pipeline": layout.pipeline, "context": layout.context, "expert": layout.expert}
    split = [f"{name} {size}" for name, size in sizes.items() if size > 1]
    note = f"\n# not in the configuration, set it in the script: {', '.join(split)} parallel" if split else ""
    return f"{head}{note}\n{json.dumps(flags.deepspeed, indent=2)}"


def layout_text(layout: ChosenLayout) -> str:
    """Return a layout in words: sizes above 1, micro-batches of a replica, sharding, recompute."""
    sizes = {"tensor": layout.tensor, "pipeline": layout.pipeline, "context": layout.context, "expert": layout.expert}
    split = [f"{name} {size}" for name, size in sizes.items() if size > 1] + [f"data {layout.data}"]
    sharding = "no sharding" if layout.sharding == "none" else layout.sharding.replace("zero", "ZeRO-")
    again = "no recompute" if layout.recompute == "none" else f"{layout.recompute} recompute"
    return f"{' x '.join(split)}, {layout.accumulation} x {layout.microbatch:.3g} sequences, {sharding}, {again}"


def speed_text(row: GangEstimate) -> str:
    """Return the source of a row's speed, without the layout that stands beside it."""
    if row.answer is None:
        return ""
    return (
        row.answer.speed_basis if row.layout is None else row.answer.speed_basis.replace(f"; {row.layout.layout}", "")
    )


def number(figure: float) -> str:
    """Return a figure with three significant digits, whole above 100."""
    return f"{figure:,.0f}" if figure >= 99.95 else f"{figure:#.3g}"


def dollars(span: UsdSpan) -> str:
    """Return an amount with its interval such as ``0.176 (0.133-0.218)``."""
    high = "no bound" if span.high is None else format_step_price(span.high)
    return f"{format_step_price(span.expected)} ({format_step_price(span.low)}-{high})"


def figures_of(span: Span) -> str:
    """Return a figure with its interval such as ``63.3 (50.9-83.7)``."""
    high = "no bound" if span.high is None else number(span.high)
    return f"{number(span.expected)} ({number(span.low)}-{high})"


def machines_text(answer: GangAnswer) -> str:
    """Return the machines such as ``4 x p5.48xlarge``; several parts joined by ``+``."""
    return " + ".join(f"{part.machines} x {part.instance_type}" for part in answer.parts)


def short_memory(row: GangEstimate) -> str:
    """Return need and room of an accelerator in GiB; empty if not known."""
    found = row.layout
    return "" if found is None else f"{found.need.total:.1f} of {found.room_gib:.1f}"


def largest_text(row: GangEstimate) -> str:
    """Return what takes most of a step, such as ``compute 86 %``; empty without a shape."""
    if row.layout is None:
        return ""
    name, share = row.layout.seconds.largest
    return f"{name} {share * 100:.0f} %"


def _main_table(estimate: JobEstimate, screen: Screen) -> str:
    tokens = estimate.tokens_per_step is not None
    header = ("GANG", "MARKET", "PLACE", "STEPS/H", "RUNS") + (
        ("TOKENS/S", "$/STEP", "$/1M TOKENS (80 %)") if tokens else ("COST", "$/STEP (80 %)")
    )
    rows = []
    for row in estimate.rows:
        answer = row.answer
        if answer is None:
            continue
        cells = [str(row.option), MARKETS[row.market.value], answer.place, number(answer.nominal_steps_per_hour)]
        cells.append(f"{answer.running_share:.0%}")
        if tokens and answer.nominal_tokens_per_s is not None and answer.usd_per_million_tokens is not None:
            cells += [number(answer.nominal_tokens_per_s), format_step_price(answer.usd_per_step.expected)]
            cells.append(dollars(answer.usd_per_million_tokens))
        else:
            cells += [format_usd(answer.cost_usd), dollars(answer.usd_per_step)]
        rows.append(tuple(cells))
    text = ""
    for most in _PLACE_WIDTHS:
        text = format_table(header, rows, _RIGHT, {"GANG": 13, "PLACE": most}, screen)
        if max(map(len, text.split("\n"))) <= max(WIDTH, screen.width):
            break
    return text


def _behind(row: GangEstimate, answer: GangAnswer, screen: Screen) -> str:
    words = [machines_text(answer)]
    if row.layout is not None:
        words.append(layout_text(row.layout.layout))
        words.append(f"{largest_text(row)} of a step")
        words.append(f"{short_memory(row)} GiB")
    words.append(f"speed {speed_text(row)}")
    if answer.weak:
        words.append(f"doubt: {answer.weak}")
    return wrap_text(f"{row.name}: {'; '.join(words)}", width=max(WIDTH, screen.width))


_LEAST_SHARE = 0.0005


def _best_terms(row: GangEstimate, answer: GangAnswer, screen: Screen) -> str:
    whole = answer.usd_per_step.expected.nanos
    terms = answer.step_terms
    # A term that rounds to no share is no place where the cost goes; the other formats have all of them.
    shares = (
        f"{words} ${format_step_price(usd)} ({usd.nanos / whole:.1%})"
        for usd, words in _amounts(terms)
        if usd.nanos / whole >= _LEAST_SHARE
    )
    head = f"Where the cost of a step on {row.name} goes: "
    steps = format_count(answer.steps, "step")
    text = f"{head}{', '.join(shares)}; {steps} cost {format_usd(answer.cost_usd)}"
    return wrap_text(text, width=max(WIDTH, screen.width))


def _amounts(terms: JobCostTerms) -> Iterator[tuple[Usd, str]]:
    for name, words in TERM_WORDS.items():
        yield getattr(terms, name), words


def _without_answer(estimate: JobEstimate, screen: Screen) -> Iterator[str]:
    width = max(WIDTH, screen.width)
    refused = [row for row in estimate.rows if row.refusal is not None]
    lines = [wrap_text(f"{row.name}: {refusal_text(row)}", "  ", width) for row in refused]
    if lines:
        yield "\n".join(["No answer", *lines])


def refusal_text(row: GangEstimate) -> str:
    """Return why a row has no answer, with the largest term of memory where that is why, and what else was dropped."""
    refusal = row.refusal
    if refusal is None:
        return ""
    text = refusal.reason
    if refusal.code == "speed" and row.layout is not None and not row.layout.fits:
        text += f"; most for {MEMORY_WORDS[row.layout.largest_need]}"
    others = [f"{DROPPED_WORDS.get(code, code)} ({count})" for code, count in refusal.dropped if code != refusal.code]
    return f"{text}; other offers: {', '.join(others)}" if others else text


def _wide_row(row: GangEstimate) -> tuple[str, ...]:
    layout = "" if row.layout is None else layout_text(row.layout.layout)
    market = MARKETS[row.market.value]
    answer = row.answer
    if answer is None:
        unknown = [_UNKNOWN] * (8 + len(TERM_WORDS))
        head = (str(row.option), market, _UNKNOWN, _UNKNOWN, layout or _UNKNOWN)
        return (*head, *unknown, short_memory(row) or _UNKNOWN, _UNKNOWN, refusal_text(row))
    tokens, million = answer.tokens_per_s, answer.usd_per_million_tokens
    return (
        str(row.option),
        market,
        answer.place,
        machines_text(answer),
        layout or _UNKNOWN,
        number(answer.nominal_steps_per_hour),
        f"{answer.running_share:.0%}",
        figures_of(answer.steps_per_hour),
        _UNKNOWN if tokens is None else figures_of(tokens),
        dollars(answer.usd_per_step),
        *(format_step_price(getattr(answer.step_terms, name)) for name in TERM_WORDS),
        _UNKNOWN if million is None else dollars(million),
        format_usd(answer.cost_usd),
        largest_text(row) or _UNKNOWN,
        short_memory(row) or _UNKNOWN,
        speed_text(row),
        "",
    )


def _csv_question(row: GangEstimate) -> dict[str, object]:
    found: dict[str, object] = {"gang": str(row.option), "market": row.market.value}
    if row.layout is not None:
        layout = row.layout.layout
        found |= {
            "tensor_parallel": layout.tensor,
            "pipeline_parallel": layout.pipeline,
            "context_parallel": layout.context,
            "expert_parallel": layout.expert,
            "data_parallel": layout.data,
            "micro_batch": f"{layout.microbatch:.6g}",
            "accumulation": layout.accumulation,
            "recompute": layout.recompute,
            "sharding": layout.sharding,
            "largest_part": row.layout.seconds.largest[0],
            "memory_gib": f"{row.layout.need.total:.6g}",
            "usable_gib": f"{row.layout.room_gib:.6g}",
            "memory_fits": str(row.layout.fits).lower(),
        }
    if row.refusal is not None:
        found |= {"refusal_code": row.refusal.code, "refusal": refusal_text(row)}
    return found


def _csv_answer(answer: GangAnswer) -> dict[str, object]:
    last = answer.parts[-1]
    found: dict[str, object] = {
        "cloud": last.cloud,
        "region": last.region,
        "zone": last.zone or "",
        "instance_type": " + ".join(dict.fromkeys(part.instance_type for part in answer.parts)),
        "machines": answer.machines,
        "usd_per_hour": answer.usd_per_hour,
        "nominal_steps_per_hour": f"{answer.nominal_steps_per_hour:.6g}",
        "running_share": f"{answer.running_share:.6g}",
        "steps": answer.steps,
        "cost_usd": answer.cost_usd,
        "speed_basis": answer.speed_basis,
        "risk_basis": answer.risk_basis,
        "weak": answer.weak,
    }
    found |= {name: getattr(answer.step_terms, name) for name in COST_TERMS}
    for name, span in (("steps_per_hour", answer.steps_per_hour), ("tokens_per_s", answer.tokens_per_s)):
        if span is not None:
            figures = {"": span.expected, "_low": span.low, "_high": span.high}
            found |= {f"{name}{end}": f"{value:.6g}" for end, value in figures.items() if value is not None}
    for name, usd in (
        ("usd_per_step", answer.usd_per_step),
        ("usd_per_million_tokens", answer.usd_per_million_tokens),
    ):
        if usd is not None:
            amounts = {"": usd.expected, "_low": usd.low, "_high": usd.high}
            found |= {f"{name}{end}": amount for end, amount in amounts.items() if amount is not None}
    return found
