"""Tell people: reports of jobs, messages, notices of clouds."""
