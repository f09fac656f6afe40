"""What happens after a plan is accepted: orders, guardrails, machines that appear and work."""
