"""One file a step, each frozen once it was released."""
