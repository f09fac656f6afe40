"""What ``stepfare demo`` plays with: a small real trainer, and a sandbox cloud to run it on. Imports nothing else."""
