"""The coordinator: lets the machines of a gang meet, stores their reports and output, and orders them to stop.

See docs/design/agent-and-coordinator.md.
"""
