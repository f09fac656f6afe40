"""Run the command line: ``python -m router`` is ``stepfare``."""

from router.cli.main import main

if __name__ == "__main__":
    main()
