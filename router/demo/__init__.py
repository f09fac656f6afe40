"""The files of ``stepfare demo``: a small real trainer, and a sandbox cloud to run it on. Imports nothing else."""
