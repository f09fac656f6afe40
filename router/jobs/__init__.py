"""What was asked: the job, its limits file, and the physics of running it (speed, checkpoints, interruptions)."""
