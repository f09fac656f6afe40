"""Accept plans: guardrails, approvals, the policy of each run."""
