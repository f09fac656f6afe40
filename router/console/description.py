"""The description of the console's API as a document, without a console that is open."""

from __future__ import annotations

import json
from typing import cast

from router.app.queries.context import QueryContext
from router.console.answers import AnswerCache
from router.console.api.openapi import openapi_document
from router.console.app import make_console
from router.console.site import ConsoleSite


def openapi_text() -> str:
    """Return the description of the console's API as it is published."""
    # Describing it opens nothing, so there is no state to ask.
    site = ConsoleSite(cast("QueryContext", None), lambda _: None, AnswerCache())
    return json.dumps(openapi_document(make_console(site)), indent=2, ensure_ascii=False) + "\n"
