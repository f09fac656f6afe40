"""The state database: plans that were accepted, attempts and their machines, the journal, the audit log, the ledger."""
