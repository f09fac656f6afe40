"""Plan again with other inputs: changes that are asked for, worths of rules and of gangs."""
