"""Read the files that users write: YAML with positions, jobs and limits, problems with their place."""
