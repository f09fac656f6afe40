"""How machines appear: a workspace value rendered to Terraform's JSON and run.

Knows ``pricing`` only; neither ``router`` nor ``providers``.
"""
