"""Name the two costs of a fact, of which a report or a comparison counts one."""

from __future__ import annotations

from enum import StrEnum


class CostBasis(StrEnum):
    """The cost that is counted, by its column of facts (:data:`router.showback.facts.COLUMNS`)."""

    BILLED = "billed"  # cash: what invoices charge
    EFFECTIVE = "effective"  # accrual: commitments spread over what they cover
