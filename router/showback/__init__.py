"""What it cost: bills of clouds, and the reports that finance reads.

Reads the ledger and imported bills; decides nothing about machines.
"""
