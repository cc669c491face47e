"""`python -m rlvr`: the command line, where its entry point is not installed."""

import sys

from rlvr.cli.main import main

sys.exit(main())
