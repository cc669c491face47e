"""A PPO iteration on 8 to 1,024 GPUs, on paper: where its time goes, what it needs of memory, and where it stops scaling.

    uv run python -m benchmarks.scaling_model --gpus 8 64 512 1024 --model 7b
    uv run python -m benchmarks.scaling_model --gpus 8 64 512 1024 --model 7b --weak
    uv run python -m benchmarks.scaling_model --gpus 64 512 --model 7b --apart      # rollout workers, generation ahead

Nothing here is measured: it is arithmetic on assumptions, each of which is a flag (docs/scaling.md gives their sources).
Operations and bytes are those of `benchmarks.floors`, memory is `rlvr train --dry_run`'s, what is sent is
`benchmarks.traffic`'s, which `benchmarks.scaling` holds against what two processes really exchange.

The arithmetic is in `benchmarks/paper.py`.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.paper import MODELS, Assumptions, Model, iteration, iteration_apart
from benchmarks.traffic import PLUGINS


@cache
def memory_gb(model: Model, a: Assumptions, plugin: str, gpus: int, responses: int) -> float:
    """GB at the peak of one GPU, by the estimate of `rlvr train --dry_run`."""
    from rlvr.config import base_config
    from rlvr.memory.estimate import Lengths, estimate

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(model.config()))
        config = base_config(
            {
                "model": {"pretrain": folder, "grad_checkpoint": True},
                "rollout": {
                    "experience_batch_size": responses, "generation_batch_size": a.rows, "max_new_tokens": a.longest,
                    "max_length": a.prompt + a.longest,
                },
                "train": {"train_batch_size": responses // a.steps, "micro_batch_tokens": a.micro_batch_tokens},
                "parallel": {"plugin": plugin, "mixed_precision": "bf16"},
            }
        )  # fmt: skip
        return estimate(config, gpus, "bf16", on_gpu=True, lengths=Lengths(a.prompt, a.longest)).peak / 1e9


COLUMNS = (
    "GPUs", "plugin", "memory GB", "fits", "generation s", "waiting s", "scoring s", "learning s", "sending s", "optimizer s",
    "iteration s", "efficiency",
)  # fmt: skip


def rows(model: Model, a: Assumptions, plugins: Sequence[str], gpus: Sequence[int], weak: bool) -> list[list[str]]:
    """The table. Efficiency: responses a second and GPU, beside those of the same plugin on the first number of GPUs.

    Args:
        weak: each number of GPUs has as many responses each as the first.
    """
    first: dict[str, float] = {}
    found = []
    for count in gpus:
        responses = a.responses * count // gpus[0] if weak else a.responses
        for plugin in plugins:
            it = iteration(model, a, plugin, count, responses)
            rate = responses / it.total / count
            needed = memory_gb(model, a, plugin, count, responses)
            seconds = [getattr(it, f.name) for f in fields(it)] + [it.total]
            found.append(
                [str(count), plugin, f"{needed:.0f}", "yes" if needed < a.hardware.memory / 1e9 else "no"]
                + [f"{s:.1f}" if s >= 0.05 else f"{s:.2f}" for s in seconds]
                + [f"{rate / first.setdefault(plugin, rate):.0%}"]
            )
    return found


APART = ("GPUs learning", "generating", "--max_staleness", "--partial_rollout_tokens", "iteration s", "a GPU's responses beside together")  # fmt: skip
AHEAD = ((0, 0), (1, 0), (2, 0), (2, 2048), (4, 0), (4, 1024))
"""(`--max_staleness`, `--partial_rollout_tokens`) of `rows_apart`."""


def rows_apart(model: Model, a: Assumptions, plugin: str, gpus: Sequence[int]) -> list[list[str]]:
    """A table of runs whose rollout workers have GPUs of their own: so many learn, and with them generate a quarter, a half, three quarters
    or as many, what is best for a GPU. Last the responses a second and GPU, beside those of GPUs that all generate and then learn."""
    found = []
    for count in gpus:
        together = iteration(model, a, plugin, count, a.responses).total
        found.append([str(count), "the same", "", "", f"{together:.1f}", "1.00"])
        for staleness, partial_tokens in AHEAD:
            tried = []
            for generating in (count // 4, count // 2, 3 * count // 4, count):
                seconds = iteration_apart(model, a, plugin, count, generating, a.responses, staleness, partial_tokens)
                tried.append(((count + generating) * seconds, generating, seconds))
            work, generating, seconds = min(tried)
            cells = [str(count), str(generating), str(staleness), str(partial_tokens)]
            found.append([*cells, f"{seconds:.1f}", f"{together * count / work:.2f}"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="7b", choices=MODELS)
    parser.add_argument("--gpus", nargs="+", type=int, default=[8, 64, 512, 1024])
    parser.add_argument("--plugins", nargs="+", default=list(PLUGINS), choices=PLUGINS)
    parser.add_argument(
        "--weak", action="store_true", help="as many responses for each GPU as the first number of them has"
    )
    parser.add_argument(
        "--apart",
        action="store_true",
        help="GPUs that generate apart from those that learn, with generation ahead (fsdp)",
    )
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/scaling.md")
    for each in fields(Assumptions):
        text = f"{each.metadata['help']} (default: {each.default})"
        parser.add_argument(
            f"--{each.name.replace('_', '-')}", type=type(each.default), default=each.default, help=text
        )
    given = parser.parse_args()
    a = Assumptions(**{each.name: getattr(given, each.name) for each in fields(Assumptions)})
    columns = APART if given.apart else COLUMNS
    try:
        if given.apart:
            found = rows_apart(MODELS[given.model], a, "fsdp", given.gpus)
        else:
            found = rows(MODELS[given.model], a, given.plugins, given.gpus, given.weak)
    except ValueError as error:
        parser.error(str(error))
    if given.markdown:
        for cells in (columns, ["---"] * len(columns), *found):
            print("| " + " | ".join(cells) + " |")
        return
    table = Table(title=f"{given.model}, {a.gpu}, {'weak' if given.weak else 'strong'} scaling")
    for column in columns:
        table.add_column(column, justify="left" if column in ("plugin", "fits") else "right")
    for cells in found:
        table.add_row(*cells)
    Console(width=150).print(table)
    print(a)


if __name__ == "__main__":
    main()
