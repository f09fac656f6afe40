"""What was planned and what was used, in money: an append-only record. Pure."""
