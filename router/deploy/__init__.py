"""Values of the deploy file: clouds, console, webhooks, messages, checked when it is read."""
