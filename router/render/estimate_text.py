"""Write estimates as text: a table of 80 columns, one of all fields, CSV, flags of launchers. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from pricing.units import format_count
from router.jobs.gang_layout import GangLayout
from router.jobs.layouts import ChosenLayout
from router.jobs.speed import UNMEASURED
from router.planning.document.gang_speeds import WORTH_MEASURING
from router.planning.document.plan_usage import COST_TERMS
from router.planning.estimate.estimate_json import launcher_of
from router.planning.estimate.gang_estimates import GangAnswer, GangEstimate, JobEstimate, Span, UsdSpan
from router.render.cost_terms_text import TERM_HEADINGS, TERM_WORDS
from router.render.explain_text import DROPPED_WORDS
from router.render.record_table import RecordTable, TableColumn, plain_value
from router.render.speed_text import EVIDENCE_WORDS
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
        parts += _proposal(answered[0][0], answered[0][1], screen)
    parts += _without_answer(estimate, screen)
    return "\n\n".join(parts) + "\n"


def wide(estimate: JobEstimate, screen: Screen = PLAIN) -> str:
    """Return a table of all figures, as wide as needed; gangs without an answer are rows with the reason."""
    return _GANGS.text(estimate.rows, screen, wide=True) + "\n"


def as_csv(estimate: JobEstimate) -> str:
    """Return CSV with one row for each gang and market; what is unknown is blank. Terms are dollars of a step."""
    return _GANGS.csv(estimate.rows)


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
    split = _split(row.layout.layout)
    note = f"\n# not in the configuration, set it in the script: {', '.join(split)} parallel" if split else ""
    return f"{head}{note}\n{json.dumps(flags.deepspeed, indent=2)}"


def _split(layout: ChosenLayout) -> list[str]:
    sizes = ((name, getattr(layout, name)) for name in ("tensor", "pipeline", "context", "expert"))
    return [f"{name} {size}" for name, size in sizes if size > 1]


def layout_text(layout: ChosenLayout) -> str:
    """Return a layout in words: sizes above 1, micro-batches of a replica, sharding, recompute."""
    split = [*_split(layout), f"data {layout.data}"]
    split += [f"virtual stages {layout.stages}"] if layout.stages > 1 else []
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
    amounts = ((getattr(answer.step_terms, name), words) for name, words in TERM_WORDS.items())
    # A term that rounds to no share is no place where the cost goes; the other formats have all of them.
    shares = (
        f"{words} ${format_step_price(usd)} ({usd.nanos / whole:.1%})"
        for usd, words in amounts
        if usd.nanos / whole >= _LEAST_SHARE
    )
    head = f"Where the cost of a step on {row.name} goes: "
    steps = format_count(answer.steps, "step")
    text = f"{head}{', '.join(shares)}; {steps} cost {format_usd(answer.cost_usd)}"
    return wrap_text(text, width=max(WIDTH, screen.width))


def _proposal(row: GangEstimate, answer: GangAnswer, screen: Screen) -> Iterator[str]:
    """Yield the advice to measure first, where much money rests on a speed that nobody measured."""
    if answer.cost_usd >= WORTH_MEASURING and answer.speed_evidence in UNMEASURED:
        yield wrap_text(
            f"The speed on {row.name} is {EVIDENCE_WORDS[answer.speed_evidence]}, ±{answer.relative_error:.0%}: before "
            f"{format_usd(answer.cost_usd)} are spent, `stepfare profile` proposes the two points that are worth most "
            "to measure",
            width=max(WIDTH, screen.width),
        )


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


def _of_answer(take: Callable[[GangAnswer], object]) -> Callable[[GangEstimate], object]:
    return lambda row: None if row.answer is None else take(row.answer)


def _of_layout(take: Callable[[GangLayout], object]) -> Callable[[GangEstimate], object]:
    return lambda row: None if row.layout is None else take(row.layout)


def _answer_text(
    heading: str, take: Callable[[GangAnswer], object], show: Callable[[Any], str] = str, *, right: bool = True
) -> TableColumn[GangEstimate]:
    return TableColumn("", _of_answer(take), heading, show, right, unknown=_UNKNOWN)


def _figure(name: str, heading: str, show: Callable[[float], str]) -> TableColumn[GangEstimate]:
    take = _of_answer(lambda answer: getattr(answer, name))
    return TableColumn(name, take, heading, show, right=True, unknown=_UNKNOWN, plain=_six_digits)


def _cost_term(name: str) -> TableColumn[GangEstimate]:
    take = _of_answer(lambda answer: getattr(answer.step_terms, name))
    return TableColumn(name, take, f"$ {TERM_HEADINGS[name]}", format_step_price, right=True, unknown=_UNKNOWN)


def _six_digits(figure: float) -> str:
    return f"{figure:.6g}"


def _span_fields(name: str, plain: Callable[[Any], object] = plain_value) -> Iterator[TableColumn[GangEstimate]]:
    """Yield the fields of a figure and of both ends of its interval."""

    def end(answer: GangAnswer, part: str) -> object:
        return getattr(getattr(answer, name), part, None)

    for suffix, part in (("", "expected"), ("_low", "low"), ("_high", "high")):
        yield TableColumn(f"{name}{suffix}", _of_answer(partial(end, part=part)), plain=plain)


_GANGS: RecordTable[GangEstimate] = RecordTable(
    (
        TableColumn("gang", lambda row: str(row.option), "GANG"),
        TableColumn("market", lambda row: row.market.value, "MARKET", MARKETS.__getitem__),
        _answer_text("PLACE", lambda a: a.place, right=False),
        TableColumn("cloud", _of_answer(lambda a: a.parts[-1].cloud)),
        TableColumn("region", _of_answer(lambda a: a.parts[-1].region)),
        TableColumn("zone", _of_answer(lambda a: a.parts[-1].zone)),
        TableColumn("instance_type", _of_answer(lambda a: " + ".join(dict.fromkeys(p.instance_type for p in a.parts)))),
        TableColumn("machines", _of_answer(lambda a: a.machines)),
        TableColumn("usd_per_hour", _of_answer(lambda a: a.usd_per_hour)),
        _answer_text("MACHINES", machines_text, right=False),
        TableColumn("", _of_layout(lambda fit: layout_text(fit.layout)), "LAYOUT", unknown=_UNKNOWN),
        *_span_fields("steps_per_hour", _six_digits),
        _figure("nominal_steps_per_hour", "STEPS/H WHILE IT RUNS", number),
        _figure("running_share", "RUNS", "{:.0%}".format),
        _answer_text("STEPS/H IN ALL (80 %)", lambda a: a.steps_per_hour, figures_of),
        _answer_text("TOKENS/S IN ALL (80 %)", lambda a: a.tokens_per_s, figures_of),
        *_span_fields("tokens_per_s", _six_digits),
        _answer_text("$/STEP (80 %)", lambda a: a.usd_per_step, dollars),
        *_span_fields("usd_per_step"),
        *map(_cost_term, COST_TERMS),
        _answer_text("$/1M TOKENS (80 %)", lambda a: a.usd_per_million_tokens, dollars),
        *_span_fields("usd_per_million_tokens"),
        TableColumn("steps", _of_answer(lambda a: a.steps)),
        TableColumn("cost_usd", _of_answer(lambda a: a.cost_usd), "COST", format_usd, right=True, unknown=_UNKNOWN),
        TableColumn("tensor_parallel", _of_layout(lambda fit: fit.layout.tensor)),
        TableColumn("pipeline_parallel", _of_layout(lambda fit: fit.layout.pipeline)),
        TableColumn("virtual_stages", _of_layout(lambda fit: fit.layout.stages)),
        TableColumn("context_parallel", _of_layout(lambda fit: fit.layout.context)),
        TableColumn("expert_parallel", _of_layout(lambda fit: fit.layout.expert)),
        TableColumn("data_parallel", _of_layout(lambda fit: fit.layout.data)),
        TableColumn("micro_batch", _of_layout(lambda fit: fit.layout.microbatch), plain=_six_digits),
        TableColumn("accumulation", _of_layout(lambda fit: fit.layout.accumulation)),
        TableColumn("recompute", _of_layout(lambda fit: fit.layout.recompute)),
        TableColumn("sharding", _of_layout(lambda fit: fit.layout.sharding)),
        TableColumn("largest_part", _of_layout(lambda fit: fit.seconds.largest[0])),
        TableColumn("", lambda r: r.answer and (largest_text(r) or None), "LARGEST PART", unknown=_UNKNOWN),
        TableColumn("", lambda row: short_memory(row) or None, "GIB OF USABLE", unknown=_UNKNOWN),
        TableColumn("memory_gib", _of_layout(lambda fit: fit.need.total), plain=_six_digits),
        TableColumn("usable_gib", _of_layout(lambda fit: fit.room_gib), plain=_six_digits),
        TableColumn("memory_fits", _of_layout(lambda fit: fit.fits)),
        TableColumn("", lambda row: row.answer and speed_text(row), "SPEED", unknown=_UNKNOWN),
        TableColumn("speed_evidence", _of_answer(lambda a: a.speed_evidence)),
        TableColumn("speed_basis", _of_answer(lambda a: a.speed_basis)),
        TableColumn("risk_basis", _of_answer(lambda a: a.risk_basis)),
        TableColumn("weak", _of_answer(lambda a: a.weak)),
        TableColumn("refusal_code", lambda row: row.refusal and row.refusal.code),
        TableColumn("refusal", refusal_text, "NO ANSWER BECAUSE"),
    )
)
CSV_FIELDS: Final = _GANGS.fields
