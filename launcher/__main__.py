"""Entry of `python -m launcher`, for supervisors: the same command as `maestro launcher`."""

# The order matters: the handlers first, then everything that takes time.
from launcher import early

early.install()

import sys  # noqa: E402

from cli.main import main  # noqa: E402

main(["launcher", *sys.argv[1:]])
