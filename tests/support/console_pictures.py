"""Take the pictures of the console that README and docs show: `python -m tests.support.console_pictures`.

It serves the demo and opens it in the Chromium of this machine; the extra `slow` has what drives it.
"""

from __future__ import annotations

import sys
from io import BytesIO

from tests.support.console_browser import DESKTOP, PHONE, chromium_browser, serving
from tests.support.repository import ROOT

FOLDER = ROOT / "docs" / "images"
#: Name, path, what the window is, light or dark.
PICTURES = (
    ("tonight", "/tonight", DESKTOP, "light"),
    ("month", "/spend/2026-11", DESKTOP, "light"),
    ("prices", "/prices", DESKTOP, "dark"),
    ("quote-phone", "/quotes", PHONE, "light"),
    ("job-phone", "/jobs/bert-large-pretraining", PHONE, "dark"),
)


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    with serving("--demo") as url, chromium_browser() as browser:
        for name, path, viewport, scheme in PICTURES:
            with browser.new_context(viewport=viewport, color_scheme=scheme, base_url=url) as context:
                page = context.new_page()
                page.goto(path)
                if path == "/quotes":
                    page.locator("a[href^='/quotes/quote-']").first.click()
                    page.wait_for_url("**/quotes/quote-*")
                (FOLDER / f"console-{name}.png").write_bytes(_smaller(page.screenshot()))
    return 0


def _smaller(png: bytes) -> bytes:
    """Return the picture with 256 colours, which are enough for pages of few colours."""
    from PIL import Image

    image = Image.open(BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    out = BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    sys.exit(main())
