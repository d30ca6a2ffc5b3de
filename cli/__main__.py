"""Entry of `python -m cli`, which ./maestro runs."""

from cli.main import main

main()
