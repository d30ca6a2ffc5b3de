"""Entry of `python -m cli`, which ./maestro runs."""

import sys

from launcher import early

# A daemon may be told to drain while it is still starting, so its handlers come before everything that takes time.
if early.is_launcher(sys.argv[1:]):
    early.install()

from cli.main import main

main()
