"""The history of attempts and jobs: life cycle, causes, entries of cost, speeds, events."""
