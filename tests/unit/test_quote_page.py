"""The page of quotes: every figure is one of the quote's to the cent, pictures hold the table's, all is escaped."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from pricing.money import Usd
from router.quotes.quote import LEVELS, Leg, Other, Point, Quote, QuoteEvidence, QuoteLearned, QuoteLearnedSpeed
from router.quotes.quote_json import quote_content
from router.render import quote_text
from router.render.drawing import text_width
from router.render.figures import cents, day_clock, money, signed_money
from router.render.quote_page import quotes_page
from router.render.quote_view import interval_words, quote_view
from tests.support.asked_quotes import a_quote, refused
from tests.support.page_reader import Element, check_landmarks, read_page
from tests.support.scenes import HOUR, NORTH, NORTH_SPOT, NOW, SOUTH, a_job

AWKWARD = "a<b>&\"c'</title><script>"


@pytest.fixture(scope="module")
def quote() -> Quote:
    """With a curve that falls, a knee, spot and on-demand."""
    return a_quote(a_job(steps=1000), 24, [NORTH, NORTH_SPOT, SOUTH])


def the_page(q: Quote, name: str = "quote-1a2b3c4d5e6f") -> Element:
    return read_page(quotes_page([(name, q)]))


def pictures(page: Element, begins: str) -> list[Element]:
    found = [svg for svg in page.tags("svg") if svg.attributes.get("aria-label", "").startswith(begins)]
    assert len(found) == 3  # wide, middle, narrow
    return found


def rows(page: Element, section: str) -> list[Element]:
    (table,) = (t for t in page.tags("table") if t.attributes.get("aria-labelledby") == f"q1-{section}")
    return table.tags("tbody")[0].tags("tr")


def dollars(text: str | None) -> str:
    """An amount of the JSON as the page shows it."""
    return "no end" if text is None else f"${Decimal(text):,.2f}"


def test_the_sentence_and_the_tiles_are_the_json_s_figures_to_the_cent(quote: Quote) -> None:
    told = json.loads(json.dumps(quote_content(quote)))
    page = the_page(quote)
    (sentence,) = page.tags("h1")
    assert [data.attributes["value"] for data in sentence.tags("data")] == [told["usd"]["mean"], told["usd"]["p90"]]
    assert sentence.words.startswith("a by Sun 22 Nov 18:00 UTC: $")
    assert sentence.words.endswith("; on time >99%.")
    (tiles,) = page.of_class("kpis")
    assert [data.attributes["value"] for data in tiles.tags("data")] == [told["usd"]["p50"], told["usd"]["p90"]]
    assert f"expected {dollars(told['usd']['mean'])}" in tiles.words
    assert quote.finish_p90 is not None
    assert f"9 of 10 by {day_clock(quote.finish_p90)}; due 22 Nov 18:00" in tiles.words


def test_every_deadline_has_a_row_with_its_figures_and_the_difference_to_the_one_asked_for(quote: Quote) -> None:
    told = quote_content(quote)
    found = rows(the_page(quote), "d")
    wanted = [*told["curve"], told["hour_later"], told["hour_earlier"]]
    wanted.sort(key=lambda p: str(p["deadline"]))
    assert len({p["deadline"][:16] for p in wanted}) == len(found)
    by_deadline = {row.attributes["data-deadline"][:16]: row for row in found}
    for p in wanted:
        cells = [cell.words for cell in by_deadline[p["deadline"][:16]].tags("td")]
        assert cells[1:4] == [dollars(p["p50"]), dollars(p["p90"]), dollars(p["mean"])]
        more = Usd.parse(p["mean"]) - Usd.parse(told["usd"]["mean"])
        assert cells[4] == ("" if p["deadline"] == told["deadline"] else signed_money(more))
    tags = [tag.words for row in found for tag in row.of_class("tag")]
    assert [tags.count(word) for word in ("tightest", "knee", "asked")] == [1, 1, 1]


def test_the_curve_has_every_point_and_names_the_three_that_count(quote: Quote) -> None:
    assert quote.knee is not None
    drawn = [p for p in quote.curve if p.p50 is not None and p.p90 is not None]
    for drawing in pictures(the_page(quote), "Cost by deadline"):
        dots = drawing.every(lambda e: "data-deadline" in e.attributes)
        assert [(d.attributes["data-p50"], d.attributes["data-p90"]) for d in dots] == [
            (cents(p.p50), cents(p.p90)) for p in drawn if p.p50 is not None and p.p90 is not None
        ]
        xs = [float(d.attributes["cx"]) for d in dots]
        assert xs == sorted(xs)
        # The height is in proportion to the money, from zero.
        zero = next(float(t.attributes["y"]) for t in drawing.tags("text") if t.words == "$0") - 4
        scale = [(zero - float(d.attributes["cy"])) / float(d.attributes["data-p50"]) for d in dots]
        assert scale == pytest.approx([scale[0]] * len(scale), rel=0.02)
        words = [t.words for t in drawing.tags("text")]
        for role, p in (("tightest", quote.curve[0]), ("knee", quote.knee)):
            assert p.p50 is not None
            assert any(w.startswith(role) and w.endswith(money(p.p50)) for w in words)
        assert any(w.startswith("asked") for w in words)


def test_labels_of_the_curve_never_meet_each_other_or_the_edge(quote: Quote) -> None:
    assert quote.knee is not None
    close = replace(
        quote,
        curve=tuple(
            Point(NOW + h * HOUR, h, Usd.parse(usd), Usd.parse(usd), 1.0, knee=h == 22, draws=400, mean=Usd.parse(usd))
            for h, usd in ((21.5, "1234.56"), (22.0, "1200.10"), (24.0, "1199.99"), (60.0, "1100"))
        ),
    )
    for each in (quote, close):
        for drawing in pictures(the_page(each), "Cost by deadline"):
            edge = float(drawing.attributes["viewbox"].split()[2])
            boxes = []
            for t in drawing.of_class("halo"):
                width = text_width(t.words, bold="b" in t.attributes["class"].split()) * 0.85  # it is an overestimate
                x, classes = float(t.attributes["x"]), t.attributes["class"].split()
                left = x - width if "e" in classes else x - width / 2 if "m" in classes else x
                assert left >= 0
                assert left + width <= edge + 1
                boxes.append((left, left + width, float(t.attributes["y"])))
            assert len(boxes) >= 6
            for i, (left, right, y) in enumerate(boxes):
                for left2, right2, y2 in boxes[i + 1 :]:
                    assert abs(y - y2) >= 12 or right <= left2 or right2 <= left


def test_an_hour_earlier_and_later_say_what_they_cost(quote: Quote) -> None:
    earlier, later = quote.hour_earlier, quote.hour_later
    assert earlier is not None
    assert later is not None
    page = the_page(replace(quote, hour_earlier=replace(earlier, mean=Usd.parse("999.99"))))
    (around,) = page.of_class("why")
    assert quote.usd.mean is not None
    assert around.words.strip().startswith(signed_money(Usd.parse("999.99") - quote.usd.mean))
    assert f"by {day_clock(later.deadline)}" in around.words
    without = the_page(replace(quote, hour_earlier=None))
    assert f"not possiblean hour earlier: the fastest place is done by {day_clock(quote.earliest)}" in without.words


def test_the_spread_is_twenty_levels_of_the_json_and_the_words_hold_them(quote: Quote) -> None:
    levels = tuple(Usd.parse(str(100 + 3 * i)) for i in range(39))
    q = replace(quote, usd_levels=levels, usd=replace(quote.usd, p50=levels[19], p90=levels[35]))
    page = the_page(q)
    shown = [cents(usd) for usd in levels[::2]]
    for drawing in pictures(page, "Spread of the cost"):
        dots = drawing.every(lambda e: "data-usd" in e.attributes)
        assert [d.attributes["data-usd"] for d in dots] == shown
        filled = [d.attributes["data-usd"] for d in dots if "full" in d.attributes["class"]]
        assert filled == [cents(usd) for usd, level in zip(levels[::2], LEVELS[::2], strict=True) if level > 0.9]
        places = {(d.attributes["cx"], d.attributes["cy"]) for d in dots}
        assert len(places) == 20
        words = [t.words for t in drawing.tags("text")]
        assert "half below $157.00" in words
        assert "9 of 10 below $205.00" in words
    assert f"The dots: {', '.join(money(usd) for usd in levels[::2])}." in page.words


def test_equal_costs_are_said_and_not_drawn(quote: Quote) -> None:
    q = replace(quote, usd_levels=(Usd.parse("12.50"),) * 39)
    page = the_page(q)
    assert "There is no spread to draw. 20 runs, each 1 in 20, cost: $12.50 (20 runs)." in page.words
    assert not [svg for svg in page.tags("svg") if svg.attributes.get("aria-label", "").startswith("Spread")]


def test_alternatives_are_the_asked_one_first_then_by_price_and_eight_at_most(quote: Quote) -> None:
    others = tuple(
        Other(f"change {i}", usd, usd, 0.9, NOW, mean=usd, draws=100, on_time_low=0.83, on_time_high=0.945)
        for i in (7, 3, 9, 1, 5, 0, 8, 2, 6, 4)
        for usd in (Usd.parse(f"{500 + i}.10"),)
    )
    endless = Other("without end", None, None, 0.4, None, 100, 0.3, 0.5)
    page = the_page(replace(quote, alternatives=(endless, *others)))
    found = [row.attributes["data-alternative"] for row in rows(page, "a")]
    assert found == ["as asked", *(f"change {i}" for i in range(7))]
    assert "4 more alternatives cost $507.10 or more." in page.words
    first = rows(page, "a")[0]
    assert first.tags("b")[0].words == "as asked"
    second = rows(page, "a")[1]
    assert [c.words for c in second.tags("td")][1:4] == ["$500.10"] * 3
    assert "90%83% to 94%, 100 runs" in second.words.replace("94.5%", "94%")
    few = the_page(replace(quote, alternatives=(endless,)))
    assert [c.words for c in rows(few, "a")[1].tags("td")][1:5] == ["no end", "no end", "no end", "not known"]


def test_the_run_strip_has_every_stretch_and_twenty_ends(quote: Quote) -> None:
    run = (
        Leg(NOW, NOW + 4 * HOUR, "aws/north-1/p9.48xlarge", "spot"),
        Leg(NOW + 4 * HOUR, NOW + 7 * HOUR, "", ""),
        Leg(NOW + 7 * HOUR, NOW + 9.5 * HOUR, "aws/south-1/p9.48xlarge", "on_demand"),
    )
    page = the_page(replace(quote, run=run, finish_levels=tuple(NOW + (5 + i / 3) * HOUR for i in range(39))))
    for drawing in pictures(page, "One typical run"):
        bars = drawing.every(lambda e: "data-market" in e.attributes)
        assert [b.attributes["data-market"] for b in bars] == ["spot", "on_demand"]
        assert float(bars[0].attributes["width"]) > 1.5 * float(bars[1].attributes["width"])
        assert len([dot for dot in drawing.tags("circle") if "data-end" in dot.attributes]) == 20
        assert any(t.words == "due 22 Nov 18:00" for t in drawing.tags("text"))
        edge = float(drawing.attributes["viewbox"].split()[2])
        for t in drawing.tags("text"):
            x, width, classes = float(t.attributes["x"]), text_width(t.words) * 0.85, t.attributes.get("class", "")
            left = x - width if "e" in classes.split() else x - width / 2 if "m" in classes.split() else x
            assert left >= -1
            assert left + width <= edge + 1
    found = [[c.words for c in row.tags("td")] for row in rows(page, "r")]
    assert [cells[1:] for cells in found] == [
        ["aws north-1 p9.48xlarge", "S spot", "4.0 h"],
        ["waits for spot", "none", "3.0 h"],
        ["aws south-1 p9.48xlarge", "D on-demand", "2.5 h"],
    ]


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (QuoteEvidence(3, 0), "No spot place was watched"),
        (QuoteEvidence(3, 2), "2 of 3 spot places were watched, but the range was not checked"),
        (QuoteEvidence(1, 1, 60, 1), "1 of 1 spot place was watched. The range was checked"),
        (QuoteEvidence(3, 2, 60, 12), "on 60 days of 12 pools"),
        (QuoteEvidence(0, 0), "No spot is counted on"),
    ],
)
def test_the_page_says_what_the_range_rests_on(quote: Quote, evidence: QuoteEvidence, words: str) -> None:
    assert words in the_page(replace(quote, evidence=evidence)).words


def test_the_page_says_which_earlier_runs_count(quote: Quote) -> None:
    assert "Earlier runs count" not in the_page(quote).words
    speed = QuoteLearnedSpeed("H100", 8, 1, None, 90.0, 0.9, 3, NOW, NOW, ("a-1",))
    page = the_page(replace(quote, learned=QuoteLearned("ab" * 32, 1, "cd" * 32, (speed,), ())))
    assert "Earlier runs count: 1 speed of this job and the interruptions of 0 pools" in page.words


def test_an_end_that_is_not_in_sight_is_a_word_and_never_zero() -> None:
    q = a_quote(a_job(spot="only", deadline=None), 5, [NORTH_SPOT])
    assert q.curve[0].p90 is None
    page = the_page(replace(q, usd=replace(q.usd, p90=None, mean=None), usd_per_step=None), name="")
    assert "no end to its cost, also in 9 of 10 cases" in page.tags("h1")[0].words
    assert "name a ceiling to accept it" in page.words
    assert "This quote is not stored" in page.words
    nothing = replace(q, usd_levels=(None,) * 39, finish_levels=(None,) * 39, run=(), curve=(), finish_p50=None)
    page = the_page(replace(nothing, hour_earlier=None, hour_later=None))
    for words in ("No other deadline was simulated", "cost: no end (20 runs)", "No run is typical", "never"):
        assert words in page.words


def test_what_a_quote_does_not_record_is_not_said_to_have_no_end(quote: Quote) -> None:
    page = the_page(replace(quote, run=(), drivers=(), conditions=()))
    for words in ("no end", "It holds as long as", "No run is typical", "is nothing"):
        assert words not in page.words
    assert "This quote does not record a run." in page.words
    assert "This quote does not record it." in page.words
    text = quote_text.text(replace(quote, places=(), conditions=()), "quote-1a2b3c4d5e6f")
    assert "HOLDS IF" not in text
    assert "COUNTS ON" not in text
    assert "\n\n\n" not in text


def test_a_quote_that_nobody_accepted_says_for_what_it_would_be(quote: Quote) -> None:
    assert quote.ceiling_usd is not None
    assert f"would be accepted if expected to cost at most {money(quote.ceiling_usd)}" in the_page(quote).words


def test_several_quotes_have_one_heading_a_table_and_a_part_each(quote: Quote) -> None:
    other = replace(quote, job="b", usd=replace(quote.usd, mean=None))
    page = read_page(quotes_page([("quote-1", quote), ("", other)], [refused(a_job("rush"), 1, [NORTH])]))
    assert quote.usd.mean is not None
    (heading,) = page.tags("h1")
    assert [d.attributes["value"] for d in heading.tags("data")] == [cents(quote.usd.mean)]
    assert "2 jobs quoted: $" in heading.words
    assert "and 1 without an end; 1 could not be quoted." in heading.words
    assert len(page.tags("article")) == 2
    ids = {e.attributes["id"] for e in page.every(lambda e: "id" in e.attributes)}
    links = [e.attributes["href"] for e in page.tags("main")[0].tags("a")]
    assert links == ["#q1", "#q2"]
    assert {link[1:] for link in links} <= ids
    assert "cannot be done by then" in page.words


def test_headings_landmarks_and_tables_are_what_readers_of_screens_need(quote: Quote) -> None:
    page = the_page(quote)
    check_landmarks(page)


def test_nothing_is_fetched_and_nothing_runs(quote: Quote) -> None:
    text = quotes_page([("quote-1", quote)])
    page = read_page(text)
    assert not [e.tag for e in page.every(lambda e: e.tag in ("script", "img", "iframe", "object", "embed"))]
    assert not re.findall(r"https?://|@import|url\((?!#)", text)
    assert not page.every(lambda e: any(name.startswith("on") for name in e.attributes))
    assert [e.attributes["href"] for e in page.tags("link")] == ["data:,"]


def test_words_of_users_are_escaped_everywhere(quote: Quote) -> None:
    place = f"aws/{AWKWARD}/p9"
    q = replace(
        quote,
        job=AWKWARD,
        team=AWKWARD,
        files=(f"/jobs/{AWKWARD}.yaml",),
        alternatives=(replace(quote.alternatives[0], change=AWKWARD),),
        conditions=(AWKWARD,),
        run=(Leg(NOW, NOW + timedelta(hours=2), place, "spot"),),
        places=(replace(quote.places[0], where=place),),
    )
    text = quotes_page([("", q)])
    assert "<script" not in text
    assert AWKWARD in read_page(text).words


def test_raw_fields_come_last_and_are_those_of_the_json(quote: Quote) -> None:
    page = the_page(quote)
    main = page.tags("main")[0]
    assert main.children[-1].tag == "details"
    assert "open" not in main.children[-1].attributes
    shown = {row.tags("th")[0].words: row.tags("td")[0].words for row in main.children[-1].tags("tr")}
    told = quote_content(quote)
    assert shown["digest"] == told["digest"]
    assert shown["usd.p90"] == told["usd"]["p90"]
    assert shown["usd_levels"].split(", ") == told["usd_levels"]
    assert shown["hour_later.mean"] == told["hour_later"]["mean"]
    foot = page.tags("footer")[0].words
    assert "stepfare quotes show quote-1a2b3c4d5e6f -o json" in foot
    assert told["book_digest"][:12] in foot


def test_the_same_quote_gives_the_same_bytes(quote: Quote) -> None:
    assert quotes_page([("quote-1", quote)]) == quotes_page([("quote-1", replace(quote))])


def test_chances_are_never_a_certainty() -> None:
    assert interval_words(0.9905, 1.0) == "99% or more"
    assert interval_words(0.93, 0.96) == "93% to 96%"


def test_a_view_without_an_id_names_a_command_that_asks_again(quote: Quote) -> None:
    q = replace(quote, files=("C:\\jobs\\a.yaml",))
    assert quote_view(q, "").command == (
        "stepfare quote a.yaml --by 2026-11-22T18:00:00Z --now 2026-11-21T18:00:00Z -o json"
    )
