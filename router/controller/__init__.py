"""The controller: orders, guardrails, provisioning, supervision and release of gangs after a plan is accepted."""
