"""Give gangs back: find their machines, settle them, also where a row of the state is damaged."""
