"""Account for costs: bills of clouds, and the reports that finance reads.

The package reads the ledger and imported bills; it decides nothing about machines.
"""
