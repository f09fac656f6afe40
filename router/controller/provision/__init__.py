"""Fulfil orders: make gangs, bring checkpoints there, put places that refused aside."""
