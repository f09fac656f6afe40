"""Calibration as text, CSV and a page."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from statistics import NormalDist
from xml.etree import ElementTree

import numpy as np

from router.render.calibration_text import as_csv, as_table, calibration_page, picture
from router.spot.availability.calibration import LEVELS, CalibrationReport, assess_calibration


def rows() -> list[CalibrationReport]:
    even = NormalDist(10, 1).inv_cdf
    outcomes, groups = np.array([even((i + 0.5) / 400) for i in range(400)]), np.arange(400)
    true = np.tile([even((i + 0.5) / 60) for i in range(60)], (400, 1))
    sure = 10 + (true - 10) / 5
    return [
        assess_calibration(f"{name} <&>", what, quoted, outcomes, groups)
        for name, quoted in (("sure", sure), ("true", true))
        for what in ("cost", "finish")
    ]


def test_a_line_a_kind_marks_what_is_outside() -> None:
    lines = as_table(rows()).splitlines()
    assert len(lines) == 5
    assert "95% held" in lines[0]
    assert lines[1].count("!") == 2
    assert "!" not in lines[3]
    assert "400" in lines[3]
    assert as_table([]).startswith("  of")


def test_csv_has_a_row_a_level() -> None:
    found = list(csv.DictReader(io.StringIO(as_csv(rows()))))
    assert len(found) == 4 * len(LEVELS)
    assert found[-1]["name"] == "true <&>"
    assert float(found[-1]["level"]) == LEVELS[-1]
    assert float(found[-1]["low"]) <= float(found[-1]["held"]) <= float(found[-1]["high"])
    assert float(found[-1]["at_or_below"]) > 0.9
    (named, *_) = csv.DictReader(io.StringIO(as_csv([replace(rows()[0], name="=cmd", what="@x")])))
    assert (named["name"], named["of"], named["quotes"]) == ("'=cmd", "'@x", "400")


def test_the_picture_is_whole_and_inside_its_frame() -> None:
    root = ElementTree.fromstring(picture(rows()))
    _, _, wide, high = map(float, root.attrib["viewBox"].split())
    assert len(root.findall("polyline")) == 4
    assert len([r for r in root.findall("rect") if "use" in r.attrib["class"]]) == 40
    for rect in root.findall("rect"):
        x, y, w, h = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= wide
        assert 0 <= y <= y + h <= high


def test_the_page_needs_nothing_else_and_escapes_names() -> None:
    found = rows()
    page = calibration_page({"traces <b>": found, "nothing": []}, {"traces <b>": found})
    assert "<b>" not in page
    assert "sure &lt;&amp;&gt;" in page
    assert "<script" not in page
    assert "http" not in page
    assert page.count("<svg") == 1
