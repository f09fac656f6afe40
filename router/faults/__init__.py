"""Faults: what went wrong, how far it holds, and what to do; from the words of clouds, Terraform and trainings."""
