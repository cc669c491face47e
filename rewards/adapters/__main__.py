"""Write the rows of a game: `python -m rewards.adapters textarena GuessTheNumber-v0 --count 500 > games.jsonl`."""

import argparse
import contextlib
import json
import sys

from rewards.adapters.game import rows
from rewards.adapters.openenv import OpenEnv
from rewards.adapters.textarena import TextArena
from rewards.adapters.verifiers import Verifiers
from rewards.errors import UserError

KINDS = {"textarena": TextArena, "openenv": OpenEnv, "verifiers": Verifiers}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m rewards.adapters", description=__doc__)
    parser.add_argument("environment", choices=KINDS)
    parser.add_argument("game", help="a game's name; for openenv and verifiers package.module:name or file.py:name")
    parser.add_argument("--count", type=int, default=500, help="rows, a seed each (500)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    arguments = parser.parse_args()
    try:
        with contextlib.redirect_stdout(sys.stderr):  # games print
            made = list(rows(KINDS[arguments.environment], arguments.game, arguments.count, arguments.seed))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for row in made:
        print(json.dumps(row, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
