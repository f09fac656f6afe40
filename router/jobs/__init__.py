"""Define the job and its limits file, and model how it runs (speed, checkpoints, interruptions)."""
