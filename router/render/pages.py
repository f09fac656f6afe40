"""Fill the templates of pages: escaped text, figures in one form, drawings as markup.

A page is one file without scripts and outside requests; equal values give equal bytes.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from importlib.resources import files

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pricing.money import Usd
from pricing.units import format_count
from router.render import drawing, figures
from router.showback.report.values import exact_text


@dataclass(frozen=True, slots=True)
class PageFrame:
    """The additions of the console to a page: its files, links, who asks, forms, and where the page's data can be had.

    ``links``: title and URL of each page, and whether it is the one that is shown. ``data_links``: titles and URLs of
    the same figures as CSV and JSON. ``csrf_token`` goes into a hidden field of every form; it is "" for whoever has no
    session.
    """

    links: tuple[tuple[str, str, bool], ...] = ()
    who: str = ""
    message: str = ""
    data_links: tuple[tuple[str, str], ...] = ()
    csrf_token: str = ""
    banner: str = ""


def fill_template(name: str, /, **values: object) -> str:
    """Return a template of ``router/render/templates`` filled with values; text in them is escaped."""
    return template_environment(("router.render",)).get_template(name).render(values)


def html_document(title: str, style: str, body: str) -> str:
    """Return a plain page in light and dark, without scripts, links or fonts; ``style`` and ``body`` are markup."""
    return fill_template("document.html", title=title, style=Markup(style.lstrip()), body=Markup(body)) + "\n"


def html_table(
    header: Sequence[str], rows: Iterable[tuple[Sequence[str], str]], left_aligned: Collection[str] = frozenset()
) -> str:
    """Return a table of text with the class of each row; columns named in ``left_aligned`` have the class ``left``."""
    classes = [' class="left"' if name in left_aligned else "" for name in header]

    def row(tag: str, cells: Sequence[str], kind: str = "") -> str:
        inner = "".join(f"<{tag}{cls}>{html.escape(cell)}</{tag}>" for cls, cell in zip(classes, cells, strict=True))
        return f'<tr class="{kind}">{inner}</tr>' if kind else f"<tr>{inner}</tr>"

    body = "\n".join(row("td", cells, kind) for cells, kind in rows)
    return f"<table>\n<thead>{row('th', header)}</thead>\n<tbody>\n{body}\n</tbody>\n</table>"


# Cuts a page into parts. No text can hold it: text is escaped.
_CUT = Markup("<!--part-->")


@dataclass(frozen=True, slots=True)
class PageParts:
    """A page without its frame: ``lead`` is what stands above a box of the console, ``main`` the rest.

    The parts are the same for all readers, who have frames of their own.
    """

    title: Markup
    as_of: Markup
    lead: Markup
    main: Markup
    foot: Markup


def fill_parts(name: str, /, **values: object) -> PageParts:
    """Return the parts of a page; its main block says with ``{{ cut }}`` where its lead ends."""
    text = fill_template(name, layout="parts.html", cut=_CUT, **values)
    return PageParts(*(Markup(part) for part in text.split(_CUT)))


def fill_frame(parts: PageParts, frame: PageFrame, box: Markup) -> str:
    """Return the page with these parts in the frame, a box below its lead."""
    return fill_template("framed.html", frame=frame, parts=parts, box=box)


def stylesheet() -> str:
    """Return the one style sheet of all pages."""
    return drawing.stylesheet() + files("router.render").joinpath("templates", "pages.css").read_text(encoding="utf-8")


@cache
def template_environment(packages: tuple[str, ...]) -> Environment:
    """Return the environment of templates in these packages, the first that has one; text in values is escaped."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # A page that stands in a file has no frame; the console gives one with its links, forms and files.
    environment.globals |= {"frame": None, "layout": "base.html", "cut": ""}
    environment.filters |= {
        "money": figures.money,
        "cents": figures.cents,
        "signed_money": figures.signed_money,
        "money_data": lambda usd: _data(usd, figures.money(usd)),
        "rate_data": lambda rate: _data(Usd(rate.nanos), figures.money(Usd(rate.nanos))),
        "exact_data": lambda usd: Markup('<data value="{}">{}</data>').format(usd, figures.money(usd)),
        "stated_money": lambda text: figures.money(Usd.parse(text)),
        "cur": lambda amount, code, signed=False: _amount(amount, figures.amount_in(amount, code, signed=signed)),
        "amount": lambda amount: _amount(amount.value, str(amount)),
        "number": lambda number: f"{number:,}",
        "percent": figures.percent,
        "chance": figures.chance,
        "day": figures.day,
        "clock": figures.clock,
        "day_clock": time_of,
        "as_of": lambda moment: _time(
            moment, f"{figures.day(moment)} {moment.astimezone(UTC):%Y}, {figures.clock(moment)} UTC"
        ),
        "long_day": figures.long_day,
        "month_name": lambda moment: f"{moment.astimezone(UTC):%B}",
        "day_before": _day_before,
        "count_of": lambda count, noun: format_count(count if isinstance(count, int) else len(count), noun),
        "dict": dict,
        "exact": exact_text,
        "exact_digits": lambda amount: amount != round(amount, 2),
    }
    return environment


def _data(amount: Usd, words: str) -> Markup:
    return Markup('<data value="{}">{}</data>').format(figures.cents(amount), words)


def time_of(moment: datetime | None) -> str:
    """Return a moment such as ``21 Nov 18:00`` as markup that says it to programs too; ``none`` for None."""
    return _time(moment, figures.day_clock(moment))


def _time(moment: datetime | None, words: str) -> str:
    # The console's script adds the reader's own time to these elements.
    if moment is None:
        return words
    return Markup('<time datetime="{:%Y-%m-%dT%H:%M:%SZ}">{}</time>').format(moment.astimezone(UTC), words)


def _amount(amount: Decimal, words: str) -> Markup:
    """Return an amount of a report with its cents beside the words that are shown."""
    return Markup('<data value="{}">{}</data>').format(figures.cents_of(amount), words)


def _day_before(moment: datetime) -> str:
    at = moment.astimezone(UTC) - timedelta(days=1)
    return f"{at.day} {at:%B}"
