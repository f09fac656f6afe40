"""The coordinator: lets the machines of a gang meet, stores their reports and output, and orders them to stop.

See docs/design/011-node-agent.md and 013-coordinator.md.
"""
