"""The plan as people and programs read it: values, money, use of limits, JSON and its schema."""
