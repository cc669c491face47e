"""A reward model learned from graded samples, PPO on it, and what that does to the truth: docs/reward_models.md.

    uv run python -m benchmarks.reward_model                    # everything; see docs for the time
    uv run python -m benchmarks.reward_model --out runs/rm --plot_only

On the built-in model and problems. Samples of the model are graded by the rule; a right and a wrong response to the same
problem are a pair. A reward model learns from them, and PPO maximises it twice: almost free to move away from the initial
model, and tied to it. The rule is asked along the way, as a mere metric: where the model's score goes up and the rule's
accuracy goes down, the reward is being hacked. What is finished under `--out` is not run again. One thread throughout.
"""

import argparse
import json
import os
import random
import subprocess
import sys
from pathlib import Path

from rlvr.report.figures import check_figure, figure

ROOT = Path(__file__).parents[1]
RULE = ["--reward_functions", "gsm8k_reward_fn", "--reward_weights", "0"]
# Weights of the divergence from the initial model.
KL_COEFS = (0.001, 0.05)
HELD_OUT_ACCURACY = 0.85


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/reward_model"), help="folder of the runs")
    parser.add_argument("--problems", type=int, default=3000, help="problems whose responses make pairs")
    parser.add_argument("--samples", type=int, default=8, help="responses to each")
    parser.add_argument("--episodes", type=int, default=60, help="of PPO")
    parser.add_argument("--plot", type=Path, default=ROOT / "docs" / "reward_hacking.png", help="file of the plot")
    parser.add_argument("--plot_only", action="store_true", help="run nothing; draw what is there")
    arguments = parser.parse_args()
    check_figure("--plot", arguments.plot)
    out = arguments.out.resolve()
    folders = {kl_coef: out / f"ppo-kl-{kl_coef}" for kl_coef in KL_COEFS}
    if not arguments.plot_only:
        make_pairs(out, arguments.problems, arguments.samples)
        train_reward_model(out / "rm", out / "train.jsonl", out / "test.jsonl")
        for kl_coef, folder in folders.items():
            train_policy(folder, out / "rm", kl_coef, arguments.episodes)
    curves = {kl_coef: read_rows(folder) for kl_coef, folder in folders.items()}
    draw(curves, arguments.plot)
    print(table(curves))
    print(f"drawn: {arguments.plot}")
    accuracy = held_out_accuracy(out / "rm")
    print(f"the reward model ranks {accuracy:.1%} of held-out pairs right")
    if accuracy < HELD_OUT_ACCURACY:
        sys.exit(f"error: fewer than {HELD_OUT_ACCURACY:.0%}")


def make_pairs(out: Path, problems: int, samples: int) -> None:
    """Preference pairs from graded samples of the built-in model, for training and held out."""
    out.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", problems), ("test", problems // 6)):
        path = out / f"{split}.jsonl"
        if not path.is_file():
            rows = graded_pairs(split, count, samples)
            path.write_text("\n".join(json.dumps(row) for row in rows))
            print(f"{split}: {len(rows)} pairs from {count} problems with {samples} responses each", flush=True)


def graded_pairs(split: str, count: int, samples: int) -> list[dict[str, str]]:
    """One pair, a right and a wrong response, for each problem that has both; drawn at random among its responses."""
    import torch

    from rewards import grade
    from rlvr.data.prompts import prepare_prompts
    from rlvr.data.readers import read_problems
    from rlvr.models.loading import load_causal_lm, load_tokenizer
    from rlvr.prompting.conversation import Conversation, ConversationTemplate
    from rlvr.rollout.engine import Sampling
    from rlvr.rollout.registry import make_engine

    torch.set_num_threads(1)
    tokenizer = load_tokenizer("tiny")
    conversation = Conversation(ConversationTemplate.load("tiny"), tokenizer)
    # Not the problems of PPO and of its evaluation, which have seed 0.
    prompts = prepare_prompts(read_problems([f"builtin:{split}"], limit=count, seed=7), conversation, 96).prompts
    repeated = [prompt for prompt in prompts for _ in range(samples)]
    sampling = Sampling(max_new_tokens=64, stop_ids=conversation.stop_ids)
    rollouts = make_engine("hf", tokenizer).generate(
        load_causal_lm("tiny").eval(), repeated, sampling, ("pairs", split)
    )
    rng, rows = random.Random(0), []
    for start in range(0, len(repeated), samples):
        problem = repeated[start].problem
        texts = {conversation.decode_response(r.response_ids.tolist()) for r in rollouts[start : start + samples]}
        by_verdict: dict[bool, list[str]] = {True: [], False: []}
        for text in sorted(texts):
            by_verdict[grade(text, problem.answer or "", tags=conversation.tags).correct].append(text)
        if by_verdict[True] and by_verdict[False]:
            chosen, rejected = rng.choice(by_verdict[True]), rng.choice(by_verdict[False])
            rows.append({"question": problem.question, "chosen": chosen, "rejected": rejected})
    return rows


def train_reward_model(folder: Path, train: Path, test: Path) -> None:
    if (folder / "reward_model" / "modeling").is_dir():
        return
    rlvr(
        folder, "reward-model", "--preference_dataset", str(train), "--eval_dataset", str(test), "--num_epochs", "4",
        "--center_rewards_coefficient", "0.01",
    )  # fmt: skip


def train_policy(folder: Path, reward_model: Path, kl_coef: float, episodes: int) -> None:
    if (folder / "actor" / "modeling").is_dir():
        return
    flags = ["--kl_coef", str(kl_coef), "--num_episodes", str(episodes)]
    rlvr(folder, "train", "--rm_checkpoint_path", str(reward_model), *RULE, *flags)


def rlvr(folder: Path, command: str, *flags: str) -> None:
    """One run on one thread; goes on where an earlier one was stopped."""
    print(f"rlvr {command}: {folder}", flush=True)
    said = folder.with_name(f"{folder.name}.txt")
    with said.open("w") as log:
        done = subprocess.run(
            [sys.executable, "-m", "rlvr", command, *flags, "--save_path", str(folder), "--resume"],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    if done.returncode:
        sys.exit(f"error: rlvr {command} failed; see {said}")


def read_rows(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def held_out_accuracy(folder: Path) -> float:
    """Share of held-out pairs that the finished reward model ranks right."""
    return [row["eval/accuracy"] for row in read_rows(folder) if "eval/accuracy" in row][-1]


Curves = dict[float, list[dict[str, float]]]


def draw(curves: Curves, path: Path) -> None:
    """For each run: the reward model's score and the rule's accuracy on the same responses, episode by episode."""
    with figure(path, columns=len(curves), width=11, height=4.2) as (_, places):
        for truth, (kl_coef, rows) in zip(places, curves.items(), strict=True):
            paid = [row for row in rows if "reward/reward_model" in row]
            episodes = [row["step"] for row in paid]
            score = truth.twinx()
            truth.plot(
                episodes, [100 * row["outcome/correct"] for row in paid], color="C0", label="right by the rule, %"
            )
            score.plot(
                episodes, [row["reward/reward_model"] for row in paid], color="C1", label="score of the reward model"
            )
            truth.set(xlabel="episode", ylabel="right by the rule, %", ylim=(0, 101), title=f"--kl_coef {kl_coef}")
            score.set(ylabel="score of the reward model")
            lines = truth.get_lines() + score.get_lines()
            truth.legend(lines, [line.get_label() for line in lines], loc="center right", fontsize=9)


def table(curves: Curves) -> str:
    """Markdown: what PPO on the reward model did to its score and to the truth."""
    lines = [
        "| `--kl_coef` | score, first episode | last | right, first | best | last | held-out accuracy before | after |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kl_coef, rows in curves.items():
        paid = [row for row in rows if "reward/reward_model" in row]
        scores = [row["reward/reward_model"] for row in paid]
        right = [row["outcome/correct"] for row in paid]
        held_out = [row["eval/accuracy"] for row in rows if "eval/accuracy" in row]
        lines.append(
            f"| {kl_coef} | {scores[0]:.2f} | {scores[-1]:.2f} | {right[0]:.1%} | {max(right):.1%} | {right[-1]:.1%} | "
            f"{held_out[0]:.1%} | {held_out[-1]:.1%} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
