"""The HTML page around a picture of prices, and how it or a picture gets into its file."""

from __future__ import annotations

import html
import os
from pathlib import Path

from router.cli import console
from router.cli.history_text import Shown, cells, place
from router.cli.text import stamp


def page(shown: Shown, svg: str) -> str:
    """One file without scripts, links or fonts of others: the picture, and its figures as text."""
    header = ("place", "machine", "market", "last", "lowest", "highest", "mean", "stock", "source")
    rows = [(place(s), s.instance_type, s.market.value, *cells(s), s.source) for s in shown.series]
    head = "".join(f"<th>{name}</th>" for name in header)
    body = "\n".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    title = f"Price history, {stamp(shown.since)} to {stamp(shown.until)}"
    picture = svg[svg.index("<svg") :]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 15px/1.4 sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #222; background: #fff }}
svg {{ width: 100%; height: auto }}
table {{ border-collapse: collapse }}
th, td {{ text-align: left; padding: 0.2em 0.8em 0.2em 0; border-bottom: 1px solid #ddd }}
</style>
</head>
<body>
<h1>{title}</h1>
{picture}
<p>Dollars an hour of one machine; the mean is over time. Stock: share of observations that found machines.</p>
<table>
<thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody>
</table>
</body>
</html>
"""


def put(file: Path, content: bytes) -> None:
    """Into the file, whole or not at all; CommandError where it cannot be written."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(file)
    except OSError as error:
        raise console.CommandError(f"{file}: cannot be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)
