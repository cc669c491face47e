"""Problems with headroom, and a model of our own that starts from nothing: the material of `studies/digit_chains.yaml`, `docs/evaluation.md`.

    python -m benchmarks.digit_chains runs/digit_chains

A problem is a number of six digits and a chain of operations, which are carried out from left to right: `738214RLA?` reverses the number,
rotates it to the left, and puts the next digit in the place of each. The working writes each step, `R412837;L128374;A239485`. Each
operation can be undone, so that an answer is as likely as any other of the 531,441: guessing earns nothing, and what is answered rightly
was worked out.

Some operations move digits, and a model that learns from the worked examples (`examples.jsonl`) comes to master them. The others change
digits, and the examples hold few of them (`--rare`), so that it does them rightly in some tries only; a chain of them, hardly ever. That
is the headroom. Problems are written by how many of their operations are rare (`train-1.jsonl`, `test-4.jsonl`, ...), none of which is in
another file. Beside them lies a model of 1.3 million random weights with the built-in one's tokenizer (`model`).
"""

import argparse
import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rlvr.models.tiny import build_tiny_tokenizer

DIGITS = 6
COMMON: dict[str, Callable[[str], str]] = {
    "R": lambda digits: digits[::-1],
    "L": lambda digits: digits[1:] + digits[0],
    "T": lambda digits: digits[-1] + digits[:-1],
    "H": lambda digits: digits[DIGITS // 2 :] + digits[: DIGITS // 2],
    "N": lambda digits: "".join(digits[i ^ 1] for i in range(DIGITS)),
}
"""Reverse, rotate to the left and to the right, swap the halves, swap neighbours."""
RARE: dict[str, Callable[[str], str]] = {
    "A": lambda digits: "".join(str(int(digit) % 9 + 1) for digit in digits),
    "S": lambda digits: "".join(str((int(digit) - 2) % 9 + 1) for digit in digits),
    "M": lambda digits: "".join(str(10 - int(digit)) for digit in digits),
    "D": lambda digits: "".join(str((2 * int(digit) - 1) % 9 + 1) for digit in digits),
}
"""For each digit the next one, the one before, the one that makes ten, its double; all among 1 to 9, in a circle."""
OPERATIONS = COMMON | RARE
LONGEST = 4
"""Operations of the longest chain."""


def worked(chain: list[str], lot: random.Random) -> tuple[str, str, str]:
    """Question, working and answer of these operations on a number from the lot."""
    number = digits = "".join(lot.choices("123456789", k=DIGITS))
    steps = []
    for name in chain:
        digits = OPERATIONS[name](digits)
        steps.append(name + digits)
    return f"{number}{''.join(chain)}?", ";".join(steps), digits


def examples(count: int, rare: float, lot: random.Random) -> Iterator[dict[str, str]]:
    """Worked examples: chains of every length, a share `rare` of whose operations is rare."""
    weights = [(1 - rare) / len(COMMON)] * len(COMMON) + [rare / len(RARE)] * len(RARE)
    for _ in range(count):
        chain = lot.choices(list(OPERATIONS), weights, k=lot.randint(1, LONGEST))
        question, working, answer = worked(chain, lot)
        yield {"question": question, "answer": f"<think>{working}</think><answer>{answer}</answer>"}


def problems(rare: int, count: int, taken: set[str], lot: random.Random) -> Iterator[dict[str, str]]:
    """Longest chains with so many rare operations, whose questions are not among those taken, which they join."""
    made = 0
    while made < count:
        chain = lot.choices(list(RARE), k=rare) + lot.choices(list(COMMON), k=LONGEST - rare)
        lot.shuffle(chain)
        question, _, answer = worked(chain, lot)
        if question not in taken:
            taken.add(question)
            made += 1
            yield {"question": question, "answer": answer}


def write(path: Path, rows: Iterable[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_model(folder: Path) -> None:
    """A Llama of six layers with random weights."""
    torch.manual_seed(0)
    tokenizer = build_tiny_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=6,
        num_attention_heads=4,
        max_position_embeddings=256,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    print(f"{folder}: {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rare", type=float, default=0.04, help="share of the examples' operations that is rare")
    parser.add_argument("--examples", type=int, default=100_000)
    a = parser.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    lot, taken = random.Random(0), set[str]()
    rows = list(examples(a.examples, a.rare, lot))
    taken.update(row["question"] for row in rows)
    write(a.folder / "examples.jsonl", rows)
    for rare in range(LONGEST + 1):
        write(a.folder / f"test-{rare}.jsonl", problems(rare, 200, taken, lot))
        write(a.folder / f"train-{rare}.jsonl", problems(rare, 4000, taken, lot))
    write_model(a.folder / "model")


if __name__ == "__main__":
    main()
