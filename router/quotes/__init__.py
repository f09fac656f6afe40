"""Quotes: the distribution of a job's cost by a deadline, what moves it, and what other deadlines cost. Pure."""
