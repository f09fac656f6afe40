"""Ask a coordinator whether it serves; a caller needs no server for that."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.request
from urllib.parse import urlsplit

from router.agent.protocol import LOOPBACK

_LARGEST_HEALTH = 4096


def is_serving(url: str, state_id: str, timeout: float, ca_file: str | None = None) -> bool:
    """Return whether a coordinator of that state answers at the URL within ``timeout`` seconds. Raises nothing."""
    handlers: list[urllib.request.BaseHandler] = []
    try:
        if urlsplit(url).scheme == "https":
            context = ssl.create_default_context(cafile=ca_file)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        if urlsplit(url).hostname in LOOPBACK:
            handlers.append(urllib.request.ProxyHandler({}))
        opener = urllib.request.build_opener(*handlers)
        with opener.open(f"{url.rstrip('/')}/v1/health", timeout=timeout) as answer:
            content = json.loads(answer.read(_LARGEST_HEALTH))
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("state") == state_id
