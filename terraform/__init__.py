"""Provisioning with Terraform: a workspace value is rendered to Terraform's JSON and run.

Knows ``pricing`` only; neither ``router`` nor ``providers``.
"""
