"""The mixed-integer program of a plan, what solves it, and a single run of a job beside the others."""
