"""The migrations, one file per step, each frozen once it was released."""
