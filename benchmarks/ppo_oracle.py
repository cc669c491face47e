"""PPO here and in TRL 1.12.0 (its last release with PPO), number by number: one step of its own `PPOTrainer.train` in float64.

    uv run python -m benchmarks.oracles --save      # runs this too; a minute on an idle core

Both sides have the same weights, responses, scores, old policy and old critic (`benchmarks.sides.trl_ppo_step` is TRL's, in an
environment that uv makes). Each column takes what it needs from TRL's columns before it, so that a difference shows where it arises.
"""

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel

from benchmarks.sides.alternate import ROOT, theirs
from benchmarks.sides.versus import PACKAGES
from benchmarks.sides.work import EOS, PAD
from rlvr.config import by_section, merge
from rlvr.config.ppo import Config
from rlvr.core.advantages import AdvantageInputs, get_estimator
from rlvr.core.kl import KLKind, kl_estimate, token_rewards
from rlvr.core.losses import StepSize
from rlvr.core.masked import mask_from_lengths, whiten
from rlvr.models.actor import Actor
from rlvr.models.batch import SequenceBatch, collate
from rlvr.models.critic import Critic
from rlvr.models.value_head import CriticOutput
from rlvr.tracking.meter import Meter
from rlvr.trainer.ppo_update import MicroBatch, Step, policy_loss, value_loss

TRL = "1.12.0"
EXACT = 2e-7
"""Largest difference that rounding explains: norms of a float64 Llama are computed in float32. What is explained is ten times that or more."""
ROWS, LIMIT, VOCAB = 8, 7, 40
SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
COLUMNS = ("advantages", "returns", "whitened", "policy loss", "value loss", "gradient")


@dataclass(frozen=True)
class Variant:
    """One kind of step in the words of both sides.

    Attributes:
        name: of the row.
        theirs: arguments of TRL's `PPOConfig`.
        equation: of the part that the row is about.
        why: who differs in what, and who is right; empty where all must agree.
        differs: the columns that must differ.
        ended: responses end with the end token, at random lengths; else the length limit cuts all of them.
        pad: token behind them.
        their_state: count the state after the end as TRL does.
        unbiased: whiten with n - 1 as TRL does.
        last_batch: TRL's data ends with this batch.
    """

    name: str
    theirs: dict[str, Any]
    equation: str
    why: str = ""
    differs: tuple[str, ...] = ()
    ended: bool = False
    pad: int = PAD
    their_state: bool = False
    unbiased: bool = True
    last_batch: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        usual = {"kl_coef": 0.05, "gamma": 1.0, "lam": 0.95, "cliprange": 0.2, "cliprange_value": 0.2, "vf_coef": 0.1}
        return usual | {"stop_token": "eos" if self.ended else None} | self.theirs


AFTER_THE_END = (
    "TRL pays the score one step after the end token, in a state whose value it learns, and so discounts it once more and puts "
    "V(s_T+1) into every advantage. The end token is the last action and nothing follows it: A_T = R - V(s_T), as here. (Responses "
    "that are cut are paid on their last token in TRL, too.) The next row does as TRL does, and agrees"
)
VARIANTS = (
    Variant("cut at the limit", {}, "A_t = sum_l (γλ)^l δ_t+l; max(-A r, -A clip(r)); max((v-R)², (clip(v)-R)²) / 2"),
    Variant("cut, other settings", {"gamma": 0.9, "lam": 0.7, "cliprange": 0.05, "cliprange_value": 0.05, "vf_coef": 0.7, "kl_coef": 0.4}, "the same"),
    Variant("cut, k3 in the reward", {"kl_estimator": "k3"}, "exp(-d) - 1 + d; refused in a run here, as its gradient is not the divergence's"),
    Variant("cut, two micro-batches", {"gradient_accumulation_steps": 2}, "mean over all tokens"),
    Variant("cut, penalised", {"stop_token": "eos", "missing_eos_penalty": 0.7}, "R - 0.7 without an end token"),
    Variant("cut, whitening by n", {"whiten_rewards": True}, "(x - mean) / sqrt(sum (x - mean)² / n)",
            "TRL divides by n - 1, here by n: what is whitened has variance 1 here. A convention; TRL's steps are smaller by the factor "
            "sqrt((n-1)/n), which the other rows allow for", ("advantages", "returns", "whitened"), unbiased=False),
    Variant("cut, whitened rewards", {"whiten_rewards": True}, "r / std(r), the mean stays"),
    Variant("ended", {}, "A_T = R - V(s_T), or V(s_T+1) - V(s_T) + λ (R - V(s_T+1))", AFTER_THE_END,
            ("advantages", "returns", "value loss", "gradient"), ended=True),
    Variant("ended, the state after it too", {}, "A_T = V(s_T+1) - V(s_T) + λ (R - V(s_T+1))", ended=True, their_state=True),
    Variant("ended, γ 0.9, the state after it too", {"gamma": 0.9, "lam": 0.7}, "the score is discounted once more", ended=True, their_state=True),
    Variant("ended, two micro-batches", {"gradient_accumulation_steps": 2}, "sum / tokens, or mean_b (sum_b / tokens_b)",
            "TRL averages the means of micro-batches, so that a token weighs more where its micro-batch is short; here the step's sum "
            "is divided by the step's tokens, however it is cut", ("policy loss", "value loss", "gradient"), ended=True, their_state=True),
    Variant("cut, two micro-batches, at the end of the data", {"gradient_accumulation_steps": 2}, "Adam(g_1 + g_2), or Adam(g_1), Adam(g_2)",
            "Accelerate, which TRL leaves accumulation to, takes the last batch of the data for the end of a step: TRL then steps after "
            "every micro-batch, with a part of the gradient each. An episode's mini-batch is one step, wherever the data ends",
            ("policy loss", "value loss", "gradient"), last_batch=True),
    Variant("ended, padded with the end token", {}, "sum over y_1 .. y_T, or .. y_T-1",
            "TRL finds padding by its token id: where that is the end token's (as many tokenizers have it), the end token of a response "
            "counts as padding, and the policy never learns to stop. Here masks come from lengths", ("advantages", "returns", "whitened", "policy loss", "gradient"),
            ended=True, pad=EOS),
)  # fmt: skip


@dataclass
class Row:
    """One line of the table: the greatest differences by column."""

    name: str
    off: Mapping[str, float]
    equation: str
    why: str = ""
    differs: Sequence[str] = field(default=())

    @property
    def expected(self) -> bool:
        """True if it agrees in every column where it should, and differs in those where a difference is explained."""
        return all((value >= EXACT) is (column in self.differs) for column, value in self.off.items())


Given = dict[str, Any]
"""What both sides start from, as tensors: weights by role; queries, responses, which of their columns hold tokens, and scores."""


def make_given(ended: bool) -> Given:
    """Random responses, and old policies and critics so far off that every bound is active somewhere."""
    g = torch.Generator().manual_seed(3)
    config = {"vocab_size": VOCAB, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None, **SIZES}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        policy = LlamaForCausalLM(LlamaConfig(**config, initializer_range=0.2)).double().state_dict()
        decoder = LlamaModel(LlamaConfig(**config, initializer_range=0.2)).double().state_dict()
    value = {f"model.{name}": w for name, w in decoder.items()}
    value["score.weight"] = 0.2 * torch.randn(1, SIZES["hidden_size"], generator=g, dtype=torch.float64)
    lengths = torch.randint(1, LIMIT, (ROWS,), generator=g) if ended else torch.full((ROWS,), LIMIT)
    lengths[0] = LIMIT
    tokens = mask_from_lengths(lengths)
    responses = torch.randint(3, VOCAB, (ROWS, LIMIT), generator=g)
    if ended:
        responses[torch.arange(1, ROWS), lengths[1:] - 1] = EOS  # but in the first, which the limit cuts
    return {
        "config": config, "policy": policy, "critic": value, "responses": responses, "tokens": tokens, "queries": torch.randint(3, VOCAB, (ROWS, 4), generator=g),
        "scores": torch.randn(ROWS, generator=g, dtype=torch.float64), "old_policy": moved(policy, g), "reference": moved(policy, g), "old_critic": moved(value, g),
    }  # fmt: skip


def moved(weights: Mapping[str, Tensor], g: torch.Generator) -> dict[str, Tensor]:
    """The weights with noise."""
    return {name: w + 0.02 * torch.randn(w.shape, generator=g, dtype=torch.float64) for name, w in weights.items()}


def their_steps(variants: Sequence[Variant]) -> list[tuple[Given, dict[str, Any]]]:
    """What TRL makes of each variant, after what it was given.

    Raises:
        RuntimeError: its process failed; with its last words.
    """
    kinds = {"cut": make_given(False), "ended": make_given(True)}
    of = ["ended" if variant.ended else "cut" for variant in variants]
    cases = [
        {"given": kind, "settings": v.settings, "pad": v.pad, "last_batch": v.last_batch}
        for kind, v in zip(of, variants, strict=True)
    ]
    found = _run_theirs(kinds | {"cases": cases})
    return [(kinds[kind], numbers) for kind, numbers in zip(of, found, strict=True)]


def _run_theirs(given: Given) -> list[dict[str, Any]]:
    command = theirs("trl_ppo_step", f"trl=={TRL}", *PACKAGES)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(given, Path(folder) / "given.pt")
        done = subprocess.run([*command, folder], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"TRL's side ended with status {done.returncode}:\n{done.stderr[-3000:]}")
        return torch.load(Path(folder) / "theirs.pt", weights_only=True)


# Our side.


def actor(given: Given, weights: str) -> Actor:
    model = LlamaForCausalLM(LlamaConfig(**given["config"])).double()
    model.load_state_dict(given[weights])
    return Actor(model)


def critic(given: Given, weights: str) -> Critic:
    named = given[weights]
    backbone = LlamaModel(LlamaConfig(**given["config"])).double()
    backbone.load_state_dict({name[len("model.") :]: w for name, w in named.items() if name.startswith("model.")})
    found = Critic(backbone).double()
    found.value_head.load_state_dict({"weight": named["score.weight"], "bias": torch.zeros(1)})
    return found


@dataclass(frozen=True)
class Ours:
    """The same step here; `states` are the columns whose values count.

    Attributes:
        variant: the row.
        given: what both sides start from.
        found: TRL's numbers.
    """

    variant: Variant
    given: Given
    found: Mapping[str, Any]

    @property
    def tokens(self) -> Tensor:
        return self.given["tokens"]

    @property
    def states(self) -> Tensor:
        if not self.variant.their_state:
            return self.tokens
        return mask_from_lengths((self.tokens.sum(1) + 1).clamp(max=LIMIT), LIMIT)

    def sequences(self) -> SequenceBatch:
        lengths = self.tokens.sum(1).tolist()
        return collate(
            list(self.given["queries"]), [r[:n] for r, n in zip(self.given["responses"], lengths, strict=True)]
        )

    def values(self, out: CriticOutput) -> Tensor:
        """[B, R] of the states that count."""
        return torch.where(self.states & ~self.tokens, out.last_values[:, None], out.values)

    def whiten(self, values: Tensor, mask: Tensor, shift_mean: bool = True) -> Tensor:
        white, n = whiten(values, mask, shift_mean=shift_mean), mask.sum()
        if not self.variant.unbiased:
            return white
        mean = 0.0 if shift_mean else values[mask].mean()
        return torch.where(mask, mean + (white - mean) * ((n - 1) / n).sqrt(), 0.0)

    def advantages(self) -> tuple[Tensor, Tensor]:
        """[B, R] before whitening, and the critic's targets."""
        s, batch = self.variant.settings, self.sequences()
        kind: KLKind = s.get("kl_estimator", "k1")
        with torch.no_grad():
            old, reference = (actor(self.given, name).forward(batch).logprobs for name in ("old_policy", "reference"))
            values = self.values(critic(self.given, "old_critic").forward(batch))
        ends = (self.given["responses"] == EOS).logical_and(self.tokens).any(1)
        scores = self.given["scores"] - s.get("missing_eos_penalty", 0.0) * (~ends).double()
        rewards, _ = token_rewards(scores, kl_estimate(old, reference, kind), self.states, s["kl_coef"])
        if s.get("whiten_rewards"):
            rewards = self.whiten(rewards, self.states, shift_mean=False)
        out = get_estimator("gae")(AdvantageInputs(rewards, values, self.states, gamma=s["gamma"], lam=s["lam"]))
        assert out.returns is not None
        return out.advantages, out.returns

    def losses(self) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Policy loss and value loss of the step (before `vf_coef`), and gradients of their sum under TRL's names."""
        s, found, batch = self.variant.settings, self.found, self.sequences()
        flags = {
            "eps_clip": s["cliprange"],
            "value_clip": s["cliprange_value"],
            "vf_coef": s["vf_coef"],
            "kl_coef": 0.0,
        }
        step = Step(merge(Config(), by_section(flags)), 0.0, Meter(), StepSize.from_mask(self.tokens))
        read = ("logprobs", "ref_logprobs", "advantages", "values", "returns")
        part = MicroBatch(batch, mask=self.tokens, **{name: found[name] for name in read})
        policy, value = actor(self.given, "policy"), critic(self.given, "critic")
        of_policy = policy_loss(policy.forward(batch), part, step)
        of_values = replace(step, size=StepSize.from_mask(self.states))
        of_critic = value_loss(self.values(value.forward(batch)), replace(part, mask=self.states), of_values)
        (of_policy + of_critic).backward()
        grads = {f"policy.{name}": p.grad for name, p in policy.model.named_parameters()}
        grads |= {f"critic.model.{name}": p.grad for name, p in value.backbone.named_parameters()}
        grads["critic.score.weight"] = value.value_head.weight.grad
        return (
            of_policy.detach(),
            of_critic.detach() / s["vf_coef"],
            {name: g for name, g in grads.items() if g is not None},
        )


def compare(variant: Variant, given: Given, found: Mapping[str, Any]) -> Row:
    """Both sides' numbers, column by column."""
    ours = Ours(variant, given, found)
    tokens, gradients = ours.tokens, found["gradients"]
    advantages, returns = ours.advantages()
    of_policy, of_critic, grads = ours.losses()
    assert set(grads) == set(gradients), "the same weights on both sides"
    off = {
        "advantages": ((advantages - found["unwhitened"]) * tokens).abs().max(),
        "returns": ((returns - found["returns"]) * tokens).abs().max(),
        "whitened": ((ours.whiten(found["unwhitened"], tokens) - found["advantages"]) * tokens).abs().max(),
        "policy loss": (of_policy - found["pg_loss"]).abs(),
        "value loss": (of_critic - found["vf_loss"]).abs(),
        "gradient": max((g - gradients[name]).abs().max() for name, g in grads.items()),
    }
    return Row(
        variant.name, {name: float(off[name]) for name in COLUMNS}, variant.equation, variant.why, variant.differs
    )


def rows(variants: Sequence[Variant] = VARIANTS) -> list[Row]:
    """Every comparison with TRL's PPO."""
    return [compare(variant, *pair) for variant, pair in zip(variants, their_steps(variants), strict=True)]


def table(found: Sequence[Row]) -> str:
    """In Markdown, differences explained below."""
    lines = [f"| step | {' | '.join(COLUMNS)} | equation |", "|" + "---|" * (len(COLUMNS) + 2)]
    for row in found:
        cells = [f"{row.off[c]:.1e}{' *' if c in row.differs else ''}" for c in COLUMNS]
        lines.append(f"| {row.name} | {' | '.join(cells)} | `{row.equation}` |")
    return "\n".join([*lines, "", *(f"- *{row.name}*: {row.why}." for row in found if row.why)])
