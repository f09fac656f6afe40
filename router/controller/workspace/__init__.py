"""Make what Terraform and the machines of a gang are given: workspaces, start scripts, secrets, folders."""
