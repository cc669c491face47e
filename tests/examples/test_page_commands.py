"""Every command that README, docs and examples show is run, in the order of its page, but on a few small rows and for a step or two.

Only what can't be had in a test is replaced: a large model by the built-in one, a hub data set by a file.
"""

import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hub_server
import pytest
import tracker_stand_ins

import rewards.registry
from rlvr.cli.main import main
from rlvr.config import Config
from rlvr.config.catalog import canonical, flags_by_spelling

pytestmark = pytest.mark.usefixtures("process")
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "benchmarks" / "README.md",
    *sorted(EXAMPLES.rglob("*.md")),
]
STARTS = r"(?:uv run|rlvr|torchrun|python|OMP_NUM_THREADS=1 python|ray|.venv/bin)\b"
SCRIPTS = {"train_rlvr.py": "train", "train_sft.py": "sft", "train_rm.py": "reward-model"}
INSTEAD = {"smollm2-135m": "tiny", "smollm2": "tiny", "openai/gsm8k": "problems.jsonl"}
# Not run, and why.
ELSEWHERE = {
    "pytest": "this is it",
    "--ray": "starts a cluster: tests/on_ray/test_runs.py",
    "train_rlvr_on_ray.py": "starts a cluster: tests/on_ray/test_runs.py",
    "ray start": "starts a cluster: tests/on_ray/test_runs.py",
    "ray stop": "ends a cluster: tests/on_ray/test_runs.py",
    "rlvr[ray]": "installs a package",
    "my_template.json": "the hub can't be reached: tests/docs/test_snippets.py checks that template",
    "python train.py": "tests/examples/test_standalone.py, tests/examples/test_calculator.py",
    "python curves.py": "tests/examples/test_calculator.py",
    "lessons.yaml": "tests/examples/test_calculator.py",
    "habits.yaml": "tests/examples/test_calculator.py",
    "calls.yaml": "tests/examples/test_calculator.py",
    "--pythons": "environments of other graders: tests/leaderboard/test_measure.py",
    "rlvr replay": "needs a run with a journal: tests/replay/test_replay.py",
    "vllm-serve": "needs vLLM: tests/cli/test_vllm_serve.py, benchmarks/vllm.py",
    "--vllm_servers": "needs servers: tests/rollout/test_vllm_servers.py",
    "textarena": "needs a package: tests/rewards/adapters/test_adapters.py",
    "coati.": "the package is not on PyPI; tests/rewards/foreign/test_colossalai.py runs such functions",
}
if find_spec("reasoning_gym") is None:
    ELSEWHERE["reasoning_gym"] = "its package is not installed: uv sync --group tasks"
LONG = ("benchmarks", "tests.faults", "runs/digit_chains")
SMALL = {
    "train": "--num_episodes 1 --num_update_steps 1 --experience_batch_size 8 --train_batch_size 8 --max_new_tokens 8 --max_samples 16",
    "sft": "--max_steps 1 --train_batch_size 4 --max_samples 16",
    "reward-model": "--max_steps 1 --train_batch_size 4 --max_samples 16",
    "llm ppo": "--rl-max-new-tokens 8 --rl-num-ppo-epochs 1",
    "llm grpo": "--rl-max-new-tokens 8 --rl-num-ppo-epochs 1",
    "doctor": "--no_step",
    "tasks": "--max_samples 2 --num_generations 8 --max_new_tokens 8 --num_threads 1",
    "eval": "--max_samples 4 --max_new_tokens 8 --num_threads 1",
    "chat": "--max_new_tokens 8 --num_threads 1",
}
# What an example's own file names and a test can't have.
OF_EXAMPLE = {
    "gsm8k_qwen3": "--pretrain tiny --prompt_dataset problems.jsonl --eval_dataset problems.jsonl --engine hf --accumulation_steps 1",
    "smollm2_laptop": "--pretrain tiny",
}
FOREIGN = {
    "study.yaml": "seeds: [0]\nsettings: {reward_functions: [gsm8k_reward_fn], num_episodes: 1, num_update_steps: 1, experience_batch_size: 8, "
    "train_batch_size: 8, max_samples: 16, eval_samples: 4}\n",
    "my_grader.py": "def last_word(response, gold):\n    return response.split()[-1] == gold\n",
    "my_rewards.py": "def correctness(completions, answer, **kwargs):\n    return [float(a in c) for c, a in zip(completions, answer)]\n",
    "my_score.py": "def compute_score(data_source, solution_str, ground_truth, extra_info=None, method='loose'):\n"
    "    assert method == 'strict'\n    return float(ground_truth in solution_str)\n",
    "reward_func.py": "def reward_func(queries, prompts, labels):\n    return [float(q[len(p):] == a) for q, p, a in zip(queries, prompts, labels)]\n",
}


def commands_of(page: Path) -> Iterator[str]:
    """Commands in indented blocks, continued lines joined, comments left out."""
    for line in page.read_text().replace("\\\n", " ").splitlines():
        if re.match(rf"(?:    ){{1,2}}{STARTS}", line):
            yield re.sub(r"\s+#.*", "", line.strip())


def name_of(page: Path) -> str:
    """Of an example its folder's."""
    return page.parent.name if page.parent.parent == EXAMPLES else page.stem


CASES = [(page, line) for page in PAGES for line in commands_of(page)]


def rows(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, tiny_cache: Path) -> dict[Path, Path]:
    """A folder for each page, with the files that its commands name."""
    made = {}
    brief = re.search(r"^# brief\.py\n.*?(?=^```)", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert brief
    page = (ROOT / "docs" / "environments.md").read_text()
    environment = re.search(r"^# second_try\.py\n.*?(?=^```)", page, re.MULTILINE | re.DOTALL)
    assert environment
    numbers = [(n, n + 3) for n in range(12, 36)]
    for page in PAGES:
        folder = made[page] = tmp_path_factory.mktemp(name_of(page))
        for name, text in FOREIGN.items():
            (folder / name).write_text(text)
        (folder / "brief.py").write_text(brief[0])
        (folder / "second_try.py").write_text(environment[0])
        (folder / "lora.json").write_text('{"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}')
        rows(folder / "problems.jsonl", [{"question": f"{a}+{b}=?", "answer": str(a + b)} for a, b in numbers])
        rows(folder / "prompts.jsonl", [{"text": f"{a}+{b}=?", "answer": str(a + b)} for a, b in numbers])
        rows(folder / "supervised.jsonl", [{"question": f"{a}+{b}=?", "answer": str(a + b)} for a, b in numbers])
        pairs = [{"prompt": f"{a}+{b}=?", "chosen": f"{a + b}", "rejected": f"{a}"} for a, b in numbers]
        rows(folder / "pairs.jsonl", pairs)
        rows(folder / "preferences.jsonl", pairs)
        answered = [
            {"question": f"{a}+{b}=?", "gold": str(a + b), "response": str(a + b), "answer": str(a + b)}
            for a, b in numbers
        ]
        rows(folder / "answers.jsonl", answered)
        rows(folder / "cases.jsonl", [row | {"label": True} for row in answered])
        if page.parent.parent == EXAMPLES:
            shutil.copytree(page.parent, folder, dirs_exist_ok=True)
        for name in ("runs/mine", "runs/other"):
            (folder / name / "actor").mkdir(parents=True)
            (folder / name / "actor" / "modeling").symlink_to(tiny_cache)
            rows(folder / name / "metrics.jsonl", [{"step": 1, "objective/scores": 0.5}])
    return made


def words_of(line: str) -> list[str]:
    """The words behind `rlvr`, with scripts under torchrun as the commands that they are."""
    words = [INSTEAD.get(word, word) for word in shlex.split(line)]
    for script, command in SCRIPTS.items():
        if f"scripts/{script}" in words:
            return [command, *words[words.index(f"scripts/{script}") + 1 :]]
    return words[words.index("rlvr") + 1 :]


def made_small(words: list[str], number: int, page: str = "") -> list[str]:
    """The command with few rows and steps; later flags win over earlier ones."""
    command = words[0]
    kind = f"{command} {words[words.index('--trainer') + 1]}" if command == "llm" and "--trainer" in words else command
    small = shlex.split(SMALL.get(kind, ""))
    if "--config" in words:
        small += shlex.split(OF_EXAMPLE.get(page, ""))
    if {"--help", "--help_all"} & set(words):
        return words
    data = {"--prompt_dataset", "--dataset", "--preference_dataset"} & set(words)
    if command in SCRIPTS.values() and (not data or "--eval_share" in words):
        small += ["--eval_samples", "4"]
    if command in SCRIPTS.values() and "--save_path" not in words:
        small += ["--save_path", f"out/{number}"]
    return words + small


@pytest.mark.parametrize(("page", "line"), CASES, ids=[f"{name_of(page)}-{line[:70]}" for page, line in CASES])
def test_the_command_runs(page: Path, line: str, folders: dict[Path, Path], monkeypatch, capsys) -> None:
    for part, why in ELSEWHERE.items():
        if part in line:
            pytest.skip(why)
    if any(program in line for program in LONG):
        help_names_the_flags(line)
        return
    monkeypatch.chdir(folders[page])
    monkeypatch.setattr(rewards.registry, "_registered", dict(rewards.registry._registered))  # pages name files alike
    words = made_small(words_of(line), CASES.index((page, line)), name_of(page))
    monkeypatch.setattr(sys, "stdin", io.StringIO("2+3=?\n"))  # what is said to `rlvr chat`
    for module in (tracker_stand_ins.mlflow(), *map(tracker_stand_ins.recorded, ("wandb", "trackio"))):
        tracker_stand_ins.install(monkeypatch, module)
    try:
        with hub_server.serving() as hub:
            hub_server.point_at(monkeypatch, hub.endpoint)
            status = main(words)
    except SystemExit as stop:
        status = stop.code
    findings = {"score": (0, 1), "audit": (0, 1), "doctor": (0, 1)}.get(words[0], (0,))
    assert status in findings, capsys.readouterr().err


def help_names_the_flags(line: str) -> None:
    """Benchmarks, the fault harness and a study's models take minutes to hours; their flags are looked up."""
    words = shlex.split(line)
    if words[0] == "rlvr":  # of a benchmark's file, or on models that one trains
        at, shown = 1, help_of("-m", "rlvr", words[1])
    else:
        at = next(i for i, word in enumerate(words) if any(program in word for program in LONG))
        shown = help_of(*(["-m", words[at]] if words[at - 1] == "-m" else [words[at]]))
    known = flags_by_spelling(Config)  # some hand flags on to `rlvr train`
    for word in words[at + 1 :]:
        assert not word.startswith("--") or word in shown or canonical(word) in known, word


@cache
def help_of(*program: str) -> str:
    """What a program says of its flags. It sets up its process as it likes, so it gets one."""
    done = subprocess.run([sys.executable, *program, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_page_with_commands_is_walked() -> None:
    assert len(CASES) > 30 and len({page for page, _ in CASES}) > 8
