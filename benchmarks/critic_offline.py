"""What there is to foretell in the built-in model's responses, and how soon a critic foretells it. The policy stands still.

    uv run python -m benchmarks.critic_offline                                    # the warm-started model; 2 min on a quiet core
    uv run python -m benchmarks.critic_offline --model runs/ppo/actor/modeling    # a later one

Samples responses to held-out and to training problems. Of the former: the share of the variance of scores that the problem alone
explains, and that is explained by whether a response works or blurts the answer out. Then fits critics to the latter, each response
seen once, as a run would: explained variance of held-out tokens after so many responses.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance, variance

import torch
from torch import Tensor

from rewards import resolve
from rlvr.boost.optimizer import adamw
from rlvr.config import Config
from rlvr.config.models import SETTINGS_OF
from rlvr.core.masked import masked_mean
from rlvr.data.builtin import builtin_problems
from rlvr.data.prompts import Prompt, prepare_prompts
from rlvr.experience.maker import samples_of
from rlvr.models.batch import SequenceBatch, collate
from rlvr.models.critic import Critic
from rlvr.models.loading import load_backbone, load_causal_lm, load_tokenizer
from rlvr.prompting.conversation import Conversation, choose_template
from rlvr.rollout.engine import Sampling
from rlvr.rollout.registry import make_engine

LOOK_AT = (256, 512, 1024, 2048)


@dataclass(frozen=True)
class Response:
    """A response, and what it was paid."""

    prompt: Tensor
    ids: Tensor
    text: str
    score: float


@dataclass(frozen=True)
class Fit:
    """How a critic is fitted: responses of an optimizer step, its rate, and whether its trunk is the model's own or random."""

    size: int
    lr: float = 1e-3
    random: bool = False


FITS = {
    "steps of 64": Fit(64),
    "steps of 16": Fit(16),
    "steps of 16, rate 3e-3": Fit(16, lr=3e-3),
    "steps of 16, random trunk": Fit(16, random=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny", help="the policy (tiny)")
    parser.add_argument("--problems", type=int, default=128, help="held-out problems (128)")
    parser.add_argument("--responses", type=int, default=8, help="responses to each of them (8)")
    parser.add_argument("--train", type=int, default=1024, help="responses that critics are fitted to (1024)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    held_out = sample(given.model, "test", given.problems, given.responses)
    print(f"right: {fmean(r.score > 0.5 for r in held_out):.1%}")
    groups = [held_out[i : i + given.responses] for i in range(0, len(held_out), given.responses)]
    print(f"explained by the problem: {of_problem(groups):.2f}")
    print(f"explained by whether it works or blurts: {of_style(held_out):.2f}")
    training = sample(given.model, "train", given.train, 1)
    looks = [count for count in LOOK_AT if count <= given.train]
    print("| critic | " + " | ".join(f"{count:,} responses" for count in looks) + " |\n|---|" + "---|" * len(looks))
    for name, how in FITS.items():
        found = fit(given.model, how, training, held_out, looks)
        print(f"| {name} | " + " | ".join(f"{share:.2f}" for share in found) + " |", flush=True)


def sample(model: str, split: str, problems: int, responses: int) -> list[Response]:
    """Responses to built-in problems as the embedded default samples them; those to one problem stand together."""
    tokenizer = load_tokenizer("tiny")
    conversation = Conversation(choose_template(Config().template.conversation_template_config, tokenizer), tokenizer)
    r = SETTINGS_OF["tiny"][Config]["rollout"]
    chosen = builtin_problems("test" if split == "test" else "train", problems)
    prompts = prepare_prompts(chosen, conversation, r["max_length"] - r["max_new_tokens"]).prompts
    asked: list[Prompt] = [prompt for prompt in prompts for _ in range(responses)]
    sampling = Sampling(
        max_new_tokens=r["max_new_tokens"],
        temperature=1.0,
        batch_size=256,
        stop_ids=tuple(conversation.stop_ids),
        stop_strings=tuple(conversation.stop_strings),
    )
    engine = make_engine("hf", tokenizer)
    rollouts = [one for part in engine.stream(load_causal_lm(model), asked, sampling, (split,)) for one in part]
    samples = samples_of(tokenizer, conversation, asked, rollouts)
    pay = resolve("gsm8k_reward_fn").function
    return [
        Response(rollout.prompt_ids, rollout.response_ids, s.response, pay(s.response, prompt.problem.answer).value)
        for prompt, rollout, s in zip(asked, rollouts, samples, strict=True)
    ]


def of_problem(groups: Sequence[Sequence[Response]]) -> float:
    """1 - mean variance within a problem's responses / variance of all: what the best baseline for each problem explains."""
    within = fmean(variance([r.score for r in group]) for group in groups)
    return 1 - within / pvariance([r.score for group in groups for r in group])


def of_style(responses: Sequence[Response]) -> float:
    """The same for a baseline that knows whether a response shows its working."""
    blurts = [[r.score for r in responses if ("<think></think>" in r.text) is style] for style in (True, False)]
    residual = sum(len(part) * pvariance(part) for part in blurts if part) / len(responses)
    return 1 - residual / pvariance([r.score for r in responses])


def fit(
    model: str, how: Fit, training: Sequence[Response], held_out: Sequence[Response], looks: Sequence[int]
) -> list[float]:
    """Explained variance of held-out tokens after so many responses."""
    backbone = load_backbone(model)
    if how.random:
        torch.manual_seed(0)
        backbone = type(backbone)(backbone.config)
    critic = Critic(backbone)
    optimizer = adamw(critic, "fp32", lr=how.lr, weight_decay=0.0)
    found = []
    for start in range(0, len(training), how.size):
        step = training[start : start + how.size]
        batch, scores = batch_of(step)
        masked_mean(0.5 * (critic(batch).values - scores[:, None]) ** 2, batch.response_mask).backward()
        torch.nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if start + len(step) in looks:
            found.append(explained(critic, held_out))
    return found


def batch_of(responses: Sequence[Response]) -> tuple[SequenceBatch, Tensor]:
    """The responses as one batch, and their scores [B]."""
    batch = collate([r.prompt for r in responses], [r.ids for r in responses])
    return batch, torch.tensor([r.score for r in responses])


@torch.no_grad()
def explained(critic: Critic, responses: Sequence[Response]) -> float:
    """1 - variance(score - value) / variance(score), over tokens."""
    pairs = []
    for start in range(0, len(responses), 256):
        batch, scores = batch_of(responses[start : start + 256])
        values = critic(batch).values
        pairs.append(torch.stack([values, scores[:, None].expand_as(values)])[:, batch.response_mask])
    value, score = torch.cat(pairs, dim=1)
    return float(1 - (score - value).var() / score.var())


if __name__ == "__main__":
    main()
