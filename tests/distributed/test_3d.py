"""The plugin 3d on two processes gives what plain PyTorch gives in one: tensor, pipeline and sequence parallelism.

Skipped where transformers is not the version whose models ColossalAI can cut up; `.ci/run` runs it in an environment of its
own. Tolerances: in float32, gradients' norms 1e-6 relative and weights 1e-6 absolute after two steps of AdamW at 1e-2; in
bfloat16 1 % and 5e-3. Whole runs as in `test_equivalence`: 2e-5 relative or 1e-6 absolute on losses and norms.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hybrid_runs import GROUPED, SETTINGS, train
from saved_models import save_micro_model

from rlvr.boost.hybrid_check import TRANSFORMERS

pytestmark = pytest.mark.processes
if not transformers.__version__.startswith(f"{TRANSFORMERS}."):
    reason = (
        f"ColossalAI cuts up the models of transformers {TRANSFORMERS}, and {transformers.__version__} is installed"
    )
    pytest.skip(reason, allow_module_level=True)

WORKER = Path(__file__).parents[1] / "hybrid_worker.py"
EXACT = (
    "llama tp",
    "llama pp",
    "llama tp, then pp",
    "odd vocabulary pp, then tp",
    "odd vocabulary tp",
    "qwen2-tied tp",
    "qwen2-tied pp",
    "mistral tp",
    "mistral pp",
    "llama split_gather",
    "qwen2-tied all_to_all",
    "llama data parallel",
    "llama tp, checkpointing",
    "llama pp, checkpointing",
)
ROUNDED = ("llama bf16 tp", "llama bf16 pp", "llama bf16 zero1", "llama bf16 zero2")
REFUSED = {
    "family": "of the family 'gpt2'; those .* are llama, mistral, qwen2",
    "heads": "--tp 2 does not divide the model's num_attention_heads 3",
    "key heads": "take 4 processes for one model, which does not divide the 2 there are",
    "layers": "--pp 2 is more than the model's 1 layers",
    "lora": "cuts up plain layers only",
    "processes": "--tp 3 x --pp 1 x --sp 1 take 3 processes .* does not divide the 2",
}
COMPARED = (
    "train/actor_loss",
    "train/critic_loss",
    "loss/policy_avg",
    "loss/value_avg",
    "grad_norm/actor",
    "grad_norm/critic",
    "objective/kl",
    "objective/scores",
    "policy/approxkl_avg",
    "response/length_tokens",
    "lr",
)


@pytest.fixture(scope="module")
def results(tmp_path_factory, clean_env) -> dict[str, Any]:
    """All that two processes make of the worker's cases, in one launch: loading ColossalAI takes longest."""
    folder = tmp_path_factory.mktemp("hybrid")
    data = folder / "problems.jsonl"
    data.write_text("\n".join(json.dumps({"question": f"{n}+1", "answer": str(n + 1)}) for n in range(16)))
    model = save_micro_model(folder / "model")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone", str(WORKER)]
    done = subprocess.run(
        [*command, str(folder), model, str(data)], env=clean_env, capture_output=True, text=True, timeout=800
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return torch.load(folder / "results.pt", weights_only=True)


@pytest.mark.parametrize("case", EXACT)
def test_a20_steps_are_those_of_plain_torch(case, results) -> None:
    found = results[case]
    assert not found["error"]
    assert found["forward"] <= 1e-6 and found["norms"] <= 1e-6 and found["weights"] <= 1e-6, found
    # Bit for bit where the layout is the same.
    assert found["resumed"] <= (1e-6 if "then" in case else 0.0), found


@pytest.mark.parametrize("case", ROUNDED)
def test_a20_in_bfloat16_to_its_rounding(case, results) -> None:
    found = results[case]
    assert not found["error"]
    assert found["norms"] <= 1e-2 and 0 < found["weights"] <= 5e-3, found
    assert found["resumed"] == 0.0, found


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_cut_up_is_refused(case, results) -> None:
    assert re.search(REFUSED[case], results[f"refused: {case}"]["error"]), results[f"refused: {case}"]


@pytest.fixture(scope="module")
def alone(process) -> dict[str, dict[str, Any]]:
    """The same runs in one process."""
    return {
        "": train(1, **SETTINGS),
        "grouped": train(1, **GROUPED),
        "shared": train(1, shared=True, **SETTINGS),
    }


@pytest.mark.parametrize("name", ["tp", "pp", "pp grouped", "tp shared"])
def test_a13_a20_a24_a_run_learns_what_one_process_does(name, results, alone) -> None:
    together, one = results[name], alone[name[2:].strip()]
    assert len(together["rows"]) == len(one["rows"])
    for mine, theirs in zip(together["rows"], one["rows"], strict=True):
        for key in (key for key in COMPARED if key in theirs):
            assert mine[key] == pytest.approx(theirs[key], rel=2e-5, abs=1e-6), (key, mine["episode"])
    assert (together["weights"] - one["weights"]).abs().mean() < 2e-6


@pytest.mark.parametrize("name", ["tp to pp", "ddp to tp", "pp to zero2"])
def test_a30_a_checkpoint_fits_any_layout(name, results, alone) -> None:
    assert (results[name] - alone[""]["weights"]).abs().mean() < 2e-6


@pytest.mark.parametrize("name", ["tp stopped 1", "tp stopped 3", "pp stopped 3", "pp stopped 4"])
def test_a30_a_stopped_run_goes_on_bit_for_bit(name, results) -> None:
    assert torch.equal(results[name]["whole"], results[name]["resumed"])


def test_a16_the_first_ratio_is_1(results) -> None:
    """To rounding: the old logprobs come from the whole model, the new ones from its parts."""
    (row,) = results["tp first"]
    assert row["val/ratio"] == pytest.approx(1.0, abs=1e-6)
    assert row["policy/approxkl_avg"] == pytest.approx(0.0, abs=1e-10)


@pytest.mark.parametrize("name", ["tp saved", "pp saved"])
def test_transformers_reads_what_was_saved(name, results) -> None:
    assert torch.equal(results[name]["own"], results[name]["read"])


def test_the_command_trains(results) -> None:
    assert results["command"] == 0
