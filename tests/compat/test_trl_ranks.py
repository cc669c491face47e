"""Two processes of the TRL facade that were not given the same say so, both, before they train."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
SCRIPT = """
import faulthandler, gc, json, os, sys
faulthandler.enable()
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/tests", sys.argv[1] + "/tests/compat"]
from test_trl import ROWS, Tokenizer, make
from tiny_models import tiny_model
from rlvr.errors import UserError

rank = int(os.environ["RANK"])
said = {}
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
open(f"{sys.argv[2]}/{rank}.json", "w").write(json.dumps(said))
del made
gc.collect()
"""


def test_processes_that_disagree_are_told(tmp_path: Path, clean_env) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = ["torch.distributed.run", "--standalone", "--nproc_per_node=2", str(script), str(ROOT), str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, timeout=280, env=clean_env)
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        said = json.loads((tmp_path / f"{rank}.json").read_text())
        assert "kl_coef" in said["settings"] and "rank 1" in said["settings"], said
        assert "count" in said["rows"] and "policy" in said["weights"] and said["alike"] is None, said
