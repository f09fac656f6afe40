"""State what is to be placed: jobs, slots, limits, budgets, caps, groups, and what runs hold of them."""
