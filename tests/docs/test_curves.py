"""docs/curves.md names every metric that runs write, no other, and every sign of the diagnosis with its remedy."""

import ast
import json
import re
from pathlib import Path

import pytest

from rlvr.cli.main import main

pytestmark = pytest.mark.usefixtures("process")
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "curves.md").read_text()
METRICS, SIGNS = PAGE.split("## Signs of a run going wrong")
ROWS = re.findall(r"^\| (`[^|]*) \|", METRICS, re.MULTILINE)
NAMED = [name for row in ROWS for name in re.findall(r"`([^`]+)`", row)]
SMALL = """--num_episodes 1 --num_collect_steps 1 --num_update_steps 1 --experience_batch_size 8 --train_batch_size 8
--num_generations 2 --max_new_tokens 8 --max_length 128 --max_samples 16 --eval_dataset builtin --eval_samples 4 --num_threads 1
--mixed_precision fp32 --no_progress""".split()
RULES = "--reward_functions gsm8k_reward_fn repetition_penalty_fn"
RUNS = {
    "ppo": f"{RULES} --kl_target 1 --ptx_dataset rows.jsonl --ptx_coef 0.1 --mismatch_correction truncate --off_policy_mask_threshold 1 --positive_lm_coef 0.1 --positive_threshold -9 --eval_generations 2 --eval_temperature 1",
    "dapo": f"{RULES} --preset dapo --max_refills 1 --accumulation_steps 1",
    "curriculum": f"{RULES} --estimator grpo --prompt_dataset builtin@2 builtin@3 --curriculum zone",
    "remax": f"{RULES} --estimator remax --kl_in loss --entropy_control top_entropy",
    "turns": f"--environment {ROOT}/tests/naughty_environment.py:Guess --max_turns 2 --eval_temperature 1",
    "compared": "--rm_checkpoint_path rm --reward_normalisation running --rl_env_type preference_comparison",
}
ON_GPUS = {"memory/device_bytes", "memory/device_peak_bytes"}
ON_RAY = {"sampler/staleness_avg", "sampler/staleness_max"}  # tests/on_ray/test_asynchronous.py
SUPERVISED = "--max_steps 2 --log_interval 1 --train_batch_size 4 --max_samples 16 --eval_samples 8 --num_threads 1 --no_progress"


@pytest.fixture(scope="module")
def written(micro_model: str, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names that runs of every kind write."""
    folder = tmp_path_factory.mktemp("curves")
    row = {"question": "11+2=?", "answer": "<think>11+2=13</think><answer>13</answer>"}
    (folder / "rows.jsonl").write_text((json.dumps(row) + "\n") * 8)
    model = ["--pretrain", micro_model]
    commands = {
        "sft": ["sft", *model, *SUPERVISED.split()],
        "rm": ["reward-model", *model, *SUPERVISED.split(), "--center_rewards_coefficient", "0.01"],
    }
    commands |= {name: ["train", *model, *SMALL, *flags.split()] for name, flags in RUNS.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, words in commands.items():
            assert main([*words, "--save_path", name]) == 0, name
    lines = [line for path in folder.glob("*/metrics.jsonl") for line in path.read_text().splitlines()]
    return {name for line in lines for name in json.loads(line)}


def as_pattern(name: str) -> re.Pattern[str]:
    """Capitals on the page stand for any word."""
    return re.compile(re.sub("[A-Z]+", "[^/]+", re.escape(name)))


def test_every_metric_of_a_run_is_explained(written: set[str]) -> None:
    patterns = [as_pattern(name) for name in NAMED]
    assert sorted(n for n in written if not any(p.fullmatch(n) for p in patterns)) == []


def test_no_other_metric_is_named(written: set[str]) -> None:
    assert len(NAMED) == len(set(NAMED)) > 60
    unseen = {name for name in NAMED if not any(as_pattern(name).fullmatch(n) for n in written)}
    assert unseen - ON_GPUS == ON_RAY


def test_those_to_look_at_first_are_among_them() -> None:
    first = METRICS.split("## What is paid")[0].split("Look at these")[1]
    assert set(re.findall(r"`(\w+/\w+)`", first)) <= set(NAMED) and first.count("`") == 12


def findings() -> list[tuple[str, str]]:
    """Name and remedy of each sign, as they stand in the source; what is filled in is left out."""
    found = []
    for node in ast.walk(ast.parse((ROOT / "rlvr" / "tracking" / "diagnosis.py").read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
            found.append((_text(node.args[0]), _text(node.args[2])))
    return found


def _text(node: ast.expr) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))


def test_every_sign_is_in_the_table_with_the_flags_of_its_remedy() -> None:
    rows = [line.strip("|").split("|") for line in SIGNS.splitlines() if line.startswith("| ")][1:]
    table = {row[0].strip(): row[2] for row in rows}
    assert len(findings()) == len(table) >= 13
    for name, remedy in findings():
        stem = name.strip(" ()")
        (row,) = [text for sign, text in table.items() if stem in sign]
        assert set(re.findall(r"--\w+", remedy)) <= set(re.findall(r"--\w+", row)), name
        assert set(re.findall(r"--\w+", row)) <= set(re.findall(r"--\w+", remedy)), name
