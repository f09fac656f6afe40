"""Read the labels of jobs from their specifications in the state."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from router.state.store import StateStore


def labels_of_jobs(store: StateStore, digests: Collection[str]) -> dict[str, Mapping[str, str]]:
    """Return the labels of the jobs of these digests by digest; jobs that are not stored, or have none, are left out.

    Raises StateError.
    """
    # The specification is read as plain JSON: to check it takes longer than most reports.
    found = {digest: json.loads(spec).get("labels") or () for digest, spec in store.plans.jobs(digests).items()}
    return {digest: dict(pairs) for digest, pairs in found.items() if pairs}
