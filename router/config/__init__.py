"""The files that users write: YAML with positions, jobs and limits read from it, problems with their place."""
