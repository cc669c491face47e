"""Where training drives the divergence from the reference, by the estimate of it and by its place, with no other reward.

    uv run python -m benchmarks.kl_places          # a minute or two on one core; prints the table of docs/off_policy.md

The policy is a table of logits for 8 tokens of a vocabulary of 16, so that its divergence is known exactly. It starts near a random
reference, samples 256 responses a step, and learns from nothing but the divergence, by the functions that training uses
(`token_rewards`, `reinforce_pp`, `clipped_policy_loss`, `aggregate`): Adam at 0.02, 200 steps, in one pass over each batch or in four.
What is right ends at 0. Estimates that a run refuses in a place are measured too.
"""

import argparse
from statistics import fmean

import torch
from torch import Tensor

from rlvr.core.advantages import AdvantageInputs, get_estimator
from rlvr.core.kl import SUITED, KLKind, KLPlace, kl_estimate, token_rewards
from rlvr.core.losses import StepSize, aggregate, clipped_policy_loss

TOKENS, WORDS, RESPONSES = 8, 16, 256
KINDS: tuple[KLKind, ...] = ("k1", "k2", "k3", "k3_weighted")
PLACES: tuple[KLPlace, ...] = ("reward", "loss")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="runs whose mean is shown")
    parser.add_argument("--steps", type=int, default=200, help="batches of responses")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| `--kl_in` | `--kl_estimator` | at the start | one pass | four passes | |")
    print("|---|---|---|---|---|---|")
    for place in PLACES:
        for kind in KINDS:
            ends = {passes: [] for passes in (1, 4)}  # type: dict[int, list[tuple[float, float]]]
            for passes, runs in ends.items():
                runs += [trained(place, kind, passes, arguments.steps, seed) for seed in range(arguments.seeds)]
            cells = [fmean(start for start, _ in ends[1]), *(fmean(end for _, end in runs) for runs in ends.values())]
            said = "default" if kind == SUITED[place][0] else "" if kind in SUITED[place] else "refused"
            print(f"| {place} | `{kind}` | {' | '.join(f'{abs(cell):.4f}' for cell in cells)} | {said} |", flush=True)


def trained(place: KLPlace, kind: KLKind, passes: int, steps: int, seed: int) -> tuple[float, float]:
    """The exact divergence, nats a token, before and after training on it alone."""
    g = torch.Generator().manual_seed(seed)
    reference = torch.randn(TOKENS, WORDS, generator=g).log_softmax(-1)
    logits = (reference + 0.3 * torch.randn(TOKENS, WORDS, generator=g)).requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=0.02)
    before = divergence(logits, reference)
    for _ in range(steps):
        ids = torch.multinomial(logits.detach().softmax(-1), RESPONSES, replacement=True, generator=g).T  # [B, R]
        old, ref = chosen(logits.detach(), ids), chosen(reference, ids)
        for _ in range(passes):
            optimizer.zero_grad()
            loss_of(chosen(logits, ids), old, ref, place, kind).backward()
            optimizer.step()
    return before, divergence(logits, reference)


def chosen(logits: Tensor, ids: Tensor) -> Tensor:
    """[B, R] logprobs of the tokens."""
    logprobs = logits.log_softmax(-1).expand(len(ids), -1, -1)
    return logprobs.gather(2, ids[..., None])[..., 0]


def divergence(logits: Tensor, reference: Tensor) -> float:
    """KL(policy || reference), nats a token, exactly."""
    logprobs = logits.detach().log_softmax(-1)
    return float((logprobs.exp() * (logprobs - reference)).sum(-1).mean())


def loss_of(new: Tensor, old: Tensor, ref: Tensor, place: KLPlace, kind: KLKind) -> Tensor:
    """The loss of a step with `kl_coef` 1 and a score of 0, as a run forms it."""
    mask = torch.ones_like(old, dtype=torch.bool)
    kl = kl_estimate(old, ref, kind)
    rewards, _ = token_rewards(torch.zeros(len(old)), kl, mask, 1.0 if place == "reward" else 0.0)
    groups = torch.arange(len(old))
    inputs = AdvantageInputs(rewards, None, mask, gamma=1.0, lam=1.0, groups=groups, scored=mask[:, 0])
    advantages = get_estimator("reinforce_pp")(inputs).advantages
    per_token = clipped_policy_loss(new, old, advantages, clip_range=0.2).loss
    if place == "loss":
        per_token = per_token + kl_estimate(new, ref, kind, old)
    return aggregate(per_token, mask, StepSize.from_mask(mask), "token_mean")


if __name__ == "__main__":
    main()
