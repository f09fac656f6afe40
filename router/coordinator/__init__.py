"""What the machines of a gang talk to: it lets them meet, takes their word and their output, and tells them to stop
(docs/design/011-node-agent.md, 013-coordinator.md)."""
