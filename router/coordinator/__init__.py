"""What the machines of a gang call home to (docs/design/011-node-agent.md)."""
