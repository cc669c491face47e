"""Generation: our decoding loop (`hf`) against transformers' `model.generate` (`generate`), in one run, alternating.

    OMP_NUM_THREADS=1 python -m benchmarks.generate [--models tiny S M] [--rounds 3] [--precision fp32 bf16] [--max_new_tokens 64]

The work: 64 prompts of 48 tokens. `fixed`: 64 new tokens each, no end token. `varied`: 8 groups of 8 samples of one
prompt, an end token about every 16 tokens. Model S is a random Llama of 3M parameters with a vocabulary of 512, M one
of 40M with 32,768, `tiny` the built-in model with its trained weights. Prints tokens/s, and the ratio in rounds side by
side (median, least, greatest), by the clock and, on a CPU, by the processor time used: on a busy machine only the latter
means much, and the clock's only with one thread per idle core.
"""

import argparse
import os
import statistics
import time
from dataclasses import dataclass

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from rlvr.models.loading import load_causal_lm, load_tokenizer
from rlvr.rollout.engine import Engine, Sampling
from rlvr.rollout.registry import make_engine

PROMPTS, PROMPT_TOKENS, GROUP = 64, 48, 8
SIZES = {
    "S": {"vocab_size": 512, "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 4},
    "M": {"vocab_size": 32768, "hidden_size": 448, "intermediate_size": 1152, "num_hidden_layers": 5},
}


@dataclass(frozen=True)
class Ids:
    """A prompt as an engine sees it."""

    ids: tuple[int, ...]


def build(name: str) -> PreTrainedModel:
    """The model of this name, in eval mode."""
    if name == "tiny":
        return load_causal_lm("tiny").eval()
    torch.manual_seed(0)
    config = LlamaConfig(**SIZES[name], num_attention_heads=SIZES[name]["hidden_size"] // 64, use_cache=True)
    return LlamaForCausalLM(config).eval()


def work(model: PreTrainedModel, kind: str, max_new_tokens: int, device: str) -> tuple[list[Ids], Sampling]:
    """Prompts and sampling of one kind of work."""
    generator, size = torch.Generator().manual_seed(1), model.config.vocab_size
    distinct = PROMPTS if kind == "fixed" else PROMPTS // GROUP
    rows = torch.randint(0, size, (distinct, PROMPT_TOKENS), generator=generator).tolist()
    prompts = [Ids(tuple(row)) for row in rows for _ in range(PROMPTS // distinct)]
    # A random model's tokens are about equally likely, so that a sixteenth of them as end tokens gives lengths around 16.
    stops = tuple(range(0, size, 16)) if kind == "varied" else ()
    return prompts, Sampling(max_new_tokens, stop_ids=stops)


def measure(engine: Engine, model: PreTrainedModel, prompts: list[Ids], sampling: Sampling, seed: int) -> list[float]:
    """Response tokens per second, by the clock and of processor time."""
    if next(model.parameters()).is_cuda:
        torch.cuda.synchronize()
    begin, used = time.perf_counter(), time.process_time()
    rollouts = engine.generate(model, prompts, sampling, (seed,))  # type: ignore[arg-type]
    seconds = (time.perf_counter() - begin, time.process_time() - used)
    return [sum(len(r.response_ids) for r in rollouts) / s for s in seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["tiny", "S", "M"], choices=["tiny", "S", "M"])
    parser.add_argument("--precision", nargs="+", default=["fp32", "bf16"], choices=["fp32", "bf16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--max_new_tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(
        f"torch {torch.__version__}, {arguments.threads} thread(s), {arguments.device}, load {os.getloadavg()[0]:.1f}"
    )
    tokenizer = load_tokenizer("tiny")
    for name in arguments.models:
        model = build(name).to(arguments.device)
        size = sum(p.numel() for p in model.parameters()) / 1e6
        for kind in ("fixed", "varied"):
            prompts, sampling = work(model, kind, arguments.max_new_tokens, arguments.device)
            for precision in arguments.precision:
                engines = [make_engine(engine, tokenizer) for engine in ("generate", "hf")]
                for engine in engines:
                    engine.autocast = precision == "bf16"
                    measure(engine, model, prompts, Sampling(4), 0)  # what happens only once
                rounds = [
                    [measure(engine, model, prompts, sampling, i) for engine in engines]
                    for i in range(arguments.rounds)
                ]
                old, new = (statistics.median(round_[i][0] for round_ in rounds) for i in (0, 1))
                print(
                    f"{name} ({size:.1f}M) {kind:6} {precision}: generate {old:7,.0f} tokens/s, hf {new:7,.0f}; ratio by "
                    f"clock {_ratio(rounds, 0)}, by processor time {_ratio(rounds, 1)}; load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )


def _ratio(rounds: list[list[list[float]]], by: int) -> str:
    ratios = sorted(new[by] / old[by] for old, new in rounds)
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


if __name__ == "__main__":
    main()
