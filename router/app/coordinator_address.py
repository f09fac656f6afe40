"""Find where the coordinator of a state listens, and whether it answers."""

from __future__ import annotations

from router.app.settings import AppSettings
from router.coordinator.health import is_serving
from router.deploy.deploy_settings import CoordinatorEntry
from router.state.store import StateStore

# The state's key of the port on which the coordinator listens.
PORT = "coordinator_port"
HEALTH_SECONDS = 2.0


def is_coordinator_reachable(opened: AppSettings, store: StateStore) -> bool:
    """Return whether a coordinator of this state answers on this machine, or where machines are configured to call."""
    entry = opened.deploy.coordinator
    url = entry.url or local_url(entry, entry.port or int(store.values.get(PORT) or 0))
    return is_serving(url, store.id, HEALTH_SECONDS, entry.ca)


def local_url(entry: CoordinatorEntry, port: int) -> str:
    """Return where this machine reaches a coordinator of these settings on ``port``."""
    scheme = "https" if entry.certificate else "http"
    host = "127.0.0.1" if entry.host in ("0.0.0.0", "::") else entry.host
    return f"{scheme}://{host}:{port}"
