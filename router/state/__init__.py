"""The state database: accepted plans, attempts and their machines, the journal, the audit log, the ledger."""
