"""What it saves to compute once what rows begin with alike: a forward and a backward pass of SmolLM2-135M over sixteen rows.

    python -m benchmarks.beginnings [--system 60] [--problem 60] [--response 60] [--group 8] [--turns 5] [--save]

Three ways, in turn: with padding; without; and with equal beginnings once, as training does it. Rows are a system prompt that all have,
problems that each group has, and responses of half to one and a half times `--response` tokens; all tokens are random. Prints the
median seconds of each way, and how far its gradient is from that of padded float32 as a share of its norm.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from transformers import AutoModelForCausalLM

from benchmarks.sides.report import RESULTS, in_words, machine
from rlvr.models import attention
from rlvr.models.actor import Actor
from rlvr.models.backbone import prepare
from rlvr.models.batch import SequenceBatch, collate
from rlvr.models.loading import SMOLLM2, resolve_source

ROWS = 16


def rows(a: argparse.Namespace) -> SequenceBatch:
    """The batch that is described above."""
    generator = torch.Generator().manual_seed(0)

    def text(tokens: int) -> torch.Tensor:
        return torch.randint(5, 40_000, (tokens,), generator=generator)

    system, problems = text(a.system), [text(a.problem) for _ in range(0, ROWS, a.group)]
    lengths = [a.response // 2 + a.response * i // (ROWS - 1) for i in range(ROWS)]
    return collate([torch.cat([system, problems[i // a.group]]) for i in range(ROWS)], [text(n) for n in lengths])


def apart(batch: SequenceBatch) -> SequenceBatch:
    """The batch as if no two rows began alike."""
    places = torch.arange(batch.input_ids.numel()).view_as(batch.input_ids)
    return replace(batch, first_places=places, tokens=int(batch.attention_mask.sum()))


def gradient(actor: Actor, batch: SequenceBatch, dtype: torch.dtype | None) -> torch.Tensor:
    """Of the sum of the responses' logprobs, all weights in one vector."""
    actor.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
        logprobs = actor(batch, with_entropy=False).logprobs
    logprobs.sum().backward()
    return torch.cat([p.grad.flatten() for p in actor.parameters() if p.grad is not None])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("system", 60), ("problem", 60), ("response", 60), ("group", 8), ("turns", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/beginnings.md")
    a = parser.parse_args()
    attention.install()
    source = resolve_source(SMOLLM2)
    model = AutoModelForCausalLM.from_pretrained(source.path, dtype=torch.float32, **source.arguments)
    actor, padded = (Actor(prepare(model, grad_checkpoint=False)) for _ in range(2))
    padded.keep_padding()
    batch = rows(a)
    ways: dict[str, tuple[Actor, SequenceBatch]] = {
        "with padding": (padded, batch),
        "without padding": (actor, apart(batch)),
        "equal beginnings once": (actor, batch),
    }
    exact = gradient(padded, batch, None)
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    errors = {}
    for turn in range(a.turns + 1):
        for way, (which, what) in ways.items():
            taken, found = timed(lambda which=which, what=what: gradient(which, what, torch.bfloat16))
            errors[way] = float((found - exact).norm() / exact.norm())
            seconds[way] += [taken] if turn else []
    tokens = [batch.input_ids.numel(), int(batch.attention_mask.sum()), batch.tokens]
    lines = ["| way | tokens computed | seconds | times as fast | error of the gradient |", "|---|---|---|---|---|"]
    base = statistics.median(seconds["with padding"])
    for (way, taken), count in zip(seconds.items(), tokens, strict=True):
        middle = statistics.median(taken)
        lines.append(f"| {way} | {count} | {middle:.2f} | {base / middle:.2f} | {errors[way]:.4f} |")
    text = f"{in_words(machine())}\n\nsystem prompt {a.system}, problem {a.problem}, responses of {a.response} tokens, "
    text += f"groups of {a.group}, bf16, median of {a.turns}\n\n" + "\n".join(lines) + "\n"
    print(text)
    if a.save:
        (RESULTS / "beginnings.md").write_text("# beginnings\n\n" + text)


def timed(run: Callable[[], torch.Tensor]) -> tuple[float, torch.Tensor]:
    begin = time.perf_counter()
    found = run()
    return time.perf_counter() - begin, found


if __name__ == "__main__":
    main()
