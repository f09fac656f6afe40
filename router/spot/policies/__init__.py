"""What to do with a gang at each tick: published policies, ours, and the bound that none can pass. Pure."""
