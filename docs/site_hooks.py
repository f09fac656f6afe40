"""MkDocs hooks: make the Markdown of the repository fit for the site."""

from __future__ import annotations

import posixpath
import re
from typing import Any, Final

_FENCE: Final = re.compile(r"^(```\w+) [a-z]+$", re.MULTILINE)
_LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the page with plain fences, and paths in place of links to files that the site does not have."""
    folder = posixpath.dirname(page.file.src_uri)

    def plain(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[2]))
        if not path.startswith("../"):
            return link[0]
        path = path.removeprefix("../")
        return f"`{path}`" if link[1].strip("`") == path else f"{link[1]} (`{path}`)"

    return _LINK.sub(plain, _FENCE.sub(r"\1", markdown))
