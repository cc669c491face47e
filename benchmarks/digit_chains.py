"""Problems with headroom, and models of our own that start from nothing: the material of `studies/digit_chains.yaml`, `docs/evaluation.md`.

    python -m benchmarks.digit_chains runs/digit_chains

A problem is a number of six digits and a chain of operations on them, which are carried out from left to right: `738214gRhLiA?` reverses the
number, rotates it to the left, and puts the next digit in the place of each. The letters in the order of the alphabet, from any one on,
say which operation comes next, so that a step is found in the same way wherever it stands. The working writes each step,
`gR412837;hL128374;iA239485`. Each operation can be undone, so that an answer is as likely as any other of the 531,441: guessing earns
nothing, and what is answered rightly was worked out.

Writes worked examples (`examples.jsonl`): chains of one to three operations, and in one of twenty more, of which each length is half as
common as the one before, up to ten. Without those a model stops after three operations whatever it is asked, and there is nothing to
reward. Writes problems by the length of their chain (`train-4.jsonl`, `test-8.jsonl`, ...), none of which is in another file, and models with
random weights and the tokenizer of the built-in one (`1m`, `5m`, `20m`).
"""

import argparse
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from string import ascii_lowercase

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rlvr.models.tiny import build_tiny_tokenizer

DIGITS = 6
OPERATIONS: dict[str, Callable[[str], str]] = {
    "R": lambda digits: digits[::-1],
    "L": lambda digits: digits[1:] + digits[0],
    "T": lambda digits: digits[-1] + digits[:-1],
    "H": lambda digits: digits[DIGITS // 2 :] + digits[: DIGITS // 2],
    "N": lambda digits: "".join(digits[i ^ 1] for i in range(DIGITS)),
    "A": lambda digits: "".join(str(int(digit) % 9 + 1) for digit in digits),
    "S": lambda digits: "".join(str((int(digit) - 2) % 9 + 1) for digit in digits),
    "M": lambda digits: "".join(str(10 - int(digit)) for digit in digits),
}
"""Reverse, rotate to the left and to the right, swap the halves, swap neighbours, the next digit, the one before (both among 1 to 9, in a
circle), the digit that makes ten."""
LONGEST = 10
"""Operations of the longest chain."""
SIZES = {"1m": 128, "5m": 256, "20m": 512}
"""Hidden sizes."""


def problem(chain: int, lot: random.Random) -> tuple[str, str, str]:
    """Question, working and answer."""
    number = "".join(lot.choices("123456789", k=DIGITS))
    first = lot.randrange(len(ascii_lowercase) - chain + 1)
    chosen = [label + lot.choice(list(OPERATIONS)) for label in ascii_lowercase[first : first + chain]]
    steps, digits = [], number
    for step in chosen:
        digits = OPERATIONS[step[1]](digits)
        steps.append(step + digits)
    return f"{number}{''.join(chosen)}?", ";".join(steps), digits


def examples(count: int, rare: float, lot: random.Random) -> Iterator[dict[str, str]]:
    """Worked examples: chains of one to three, but for a share `rare` of longer ones, each length half as common as the one before."""
    for _ in range(count):
        chain = lot.choice((1, 2, 3))
        if lot.random() < rare:
            chain = 4
            while chain < LONGEST and lot.random() < 0.5:
                chain += 1
        question, working, answer = problem(chain, lot)
        yield {"question": question, "answer": f"<think>{working}</think><answer>{answer}</answer>"}


def problems(chain: int, count: int, taken: set[str], lot: random.Random) -> Iterator[dict[str, str]]:
    """Problems whose questions are not among those taken, which they join."""
    made = 0
    while made < count:
        question, _, answer = problem(chain, lot)
        if question not in taken:
            taken.add(question)
            made += 1
            yield {"question": question, "answer": answer}


def write(path: Path, rows: Iterator[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_model(folder: Path, hidden: int) -> None:
    """A Llama of six layers with random weights."""
    torch.manual_seed(0)
    tokenizer = build_tiny_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=6,
        num_attention_heads=hidden // 32,
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
    parser.add_argument("--rare", type=float, default=0.05, help="share of the examples with longer chains than three")
    parser.add_argument("--examples", type=int, default=200_000)
    a = parser.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    lot, taken = random.Random(0), set[str]()
    rows = list(examples(a.examples, a.rare, lot))
    taken.update(row["question"] for row in rows)
    write(a.folder / "examples.jsonl", iter(rows))
    for chain in range(2, LONGEST + 1):
        write(a.folder / f"test-{chain}.jsonl", problems(chain, 200, taken, lot))
        write(a.folder / f"train-{chain}.jsonl", problems(chain, 4000, taken, lot))
    for name, hidden in SIZES.items():
        write_model(a.folder / name, hidden)


if __name__ == "__main__":
    main()
