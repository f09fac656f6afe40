"""Record what was planned and what was used, in money: an append-only ledger. Pure."""
