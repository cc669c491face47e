"""Two processes of the TRL facade that were not given the same say so, both, before they train."""

import json
import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes


def disagree(folder: str) -> None:
    """In each of the processes: make trainers from what the ranks were given otherwise, and one from the same; train that."""
    from tiny_models import tiny_model

    from rlvr.errors import UserError
    from tests.compat.test_trl import ROWS, make

    rank = int(os.environ["RANK"])
    said: dict[str, str | None] = {}
    for name, args, changes in [
        ("settings", {"kl_coef": 0.1 * rank}, {}),
        ("rows", {}, {"train_dataset": ROWS[: 10 - rank]}),
        ("weights", {}, {"model": tiny_model(seed=rank)}),
        ("alike", {}, {}),
    ]:
        try:
            made = make(args, **changes)
            said[name] = None
        except UserError as error:
            said[name] = str(error)
    made.train()
    Path(folder, f"{rank}.json").write_text(json.dumps(said))


def test_processes_that_disagree_are_told(tmp_path: Path, ranks) -> None:
    ranks.done(2, "tests.compat.test_trl_ranks:disagree", tmp_path)
    for rank in (0, 1):
        said = json.loads((tmp_path / f"{rank}.json").read_text())
        assert "kl_coef" in said["settings"] and "rank 1" in said["settings"], said
        assert "count" in said["rows"] and "policy" in said["weights"] and said["alike"] is None, said
