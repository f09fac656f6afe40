"""What the agent brings along for the training: one file, whole, that jobs import as ``stepfare_checkpoint``."""
