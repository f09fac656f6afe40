"""The helper that the agent gives the training: one complete file, which jobs import as ``stepfare_checkpoint``."""
