"""Loss and gradient of each variant, here and in TRL: the same model, rollouts and rewards, in float64.

    uv run python -m benchmarks.oracles --save      # two minutes on an idle core

TRL's side is its own `GRPOTrainer` (of the TRL that is installed): its `_generate_and_score_completions` makes advantages of
given responses and rewards, and its `_compute_loss` the loss. Ours is `policy_loss` of `rlvr.trainer.ppo_update` on the same
responses, and the estimators of `rlvr.core.advantages`. A difference of more than rounding is explained where its variant is listed.
PPO, which TRL no longer has, is compared with its last release that did (`benchmarks.ppo_oracle`).
"""

import argparse
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks import ppo_oracle
from rlvr.config import Config, by_section, merge
from rlvr.core.advantages import AdvantageInputs, get_estimator
from rlvr.core.losses import StepSize
from rlvr.core.masked import mask_from_lengths
from rlvr.models.actor import Actor
from rlvr.models.batch import collate
from rlvr.tracking.meter import Meter
from rlvr.trainer.ppo_update import MicroBatch, Step, policy_loss

EXACT = 1e-7
"""Largest difference that rounding explains. It is not 1e-15: norms of a float64 Llama are computed in float32, on rows that TRL pads on
both sides, and TRL's temperatures of SAPO are float32. What is explained is 2e-5 or more."""
FLOAT32 = 1e-6
"""The same where TRL computes in float32."""
VOCAB, GROUP, PROMPTS, LIMIT = 40, 4, 3, 9


@dataclass(frozen=True)
class Variant:
    """One kind of loss in the words of both sides.

    Attributes:
        name: of the row.
        theirs: arguments of TRL's `GRPOConfig`.
        ours: settings by their flags.
        equation: of the part that the row is about.
        difference: why the two differ, and who is right; empty where they must agree.
        masked: responses whose tokens do not count (TRL's `mask_truncated_completions`).
        parts: micro-batches of the optimizer step.
    """

    name: str
    theirs: dict[str, Any]
    ours: dict[str, Any]
    equation: str
    difference: str = ""
    masked: tuple[int, ...] = ()
    parts: int = 1
    weighted: bool = False


GRPO = {"loss_type": "grpo", "beta": 0.0}
SEQUENCE = {"loss_reduction": "sequence_mean", "kl_coef": 0.0}
TOKEN = {"loss_reduction": "token_mean", "kl_coef": 0.0}
CONSTANT = {"loss_reduction": "constant", "kl_coef": 0.0}
KL = SEQUENCE | {"kl_coef": 0.3, "kl_in": "loss", "kl_estimator": "k3"}
CAP = 2.0
"""C of the engine's weights."""
MEAN_OF_MEANS = (
    "TRL averages the means of micro-batches, so that a token weighs more where its micro-batch is short; here the step's sum is "
    "divided by the step's tokens, however it is cut"
)
EMPTY_ROWS = "TRL divides by all responses, here by those with a token that counts; TRL's step shrinks with each response that is masked"

VARIANTS = (
    Variant("grpo", GRPO, SEQUENCE, "mean_i mean_t -min(r A, clip(r, 1±ε) A)"),
    Variant("grpo, clip higher", GRPO | {"epsilon": 0.1, "epsilon_high": 0.28}, SEQUENCE | {"eps_clip": 0.1, "eps_clip_high": 0.28}, "clip(r, 1-ε, 1+ε')"),
    Variant("grpo, delta", GRPO | {"delta": 1.5}, SEQUENCE | {"dual_clip": 1.5}, "A < 0: loss at most -δ A"),
    Variant("grpo, KL", GRPO | {"beta": 0.3, "use_bias_correction_kl": False}, KL, "+ β k3, k3 = exp(-d) - 1 + d"),
    Variant("grpo, KL, TRL's default", GRPO | {"beta": 0.3}, KL | {"kl_estimator": "k3_weighted"}, "+ β r k3; the default here, too"),
    Variant("grpo, two micro-batches", GRPO, SEQUENCE, "mean_i over both", parts=2),
    Variant("grpo, one response masked", GRPO, SEQUENCE, "mean_i over N or N-1 responses", EMPTY_ROWS, masked=(1,)),
    Variant("bnpo", GRPO | {"loss_type": "bnpo"}, TOKEN, "sum_it / sum_i |y_i|"),
    Variant("bnpo, two micro-batches", GRPO | {"loss_type": "bnpo"}, TOKEN, "mean_b (sum_it / tokens_b)", MEAN_OF_MEANS, parts=2),
    Variant("dapo", GRPO | {"loss_type": "dapo"}, TOKEN, "sum_it / sum_i |y_i|"),
    Variant("dapo, two micro-batches", GRPO | {"loss_type": "dapo"}, TOKEN, "sum_b sum_it / tokens", parts=2),
    Variant("dapo, one response masked", GRPO | {"loss_type": "dapo"}, TOKEN, "sum_it / sum_i |y_i|", masked=(1,)),
    Variant("dr_grpo", GRPO | {"loss_type": "dr_grpo"}, CONSTANT, "sum_it / (N L)"),
    Variant("dr_grpo, two micro-batches", GRPO | {"loss_type": "dr_grpo"}, CONSTANT, "sum_it / (N L)", parts=2),
    Variant("dr_grpo, one response masked", GRPO | {"loss_type": "dr_grpo"}, CONSTANT, "sum_it / (N L or (N-1) L)", EMPTY_ROWS, masked=(1,)),
    Variant("gspo", GRPO | {"importance_sampling_level": "sequence"}, SEQUENCE | {"ratio": "sequence"}, "s = exp(mean_t log r_t)"),
    Variant("gspo, token mean", GRPO | {"loss_type": "dapo", "importance_sampling_level": "sequence"}, TOKEN | {"ratio": "sequence"}, "s on each token"),
    Variant("cispo", GRPO | {"loss_type": "cispo", "epsilon_high": 1.3}, TOKEN | {"policy_loss": "cispo", "eps_clip": 1.0, "eps_clip_high": 0.3}, "-sg(min(r, 1.3)) A log p; TRL's epsilon_high is the bound, ours what it is above 1"),
    Variant("sapo", GRPO | {"loss_type": "sapo"}, SEQUENCE | {"policy_loss": "sapo", "tau_pos": 1.0, "tau_neg": 1.05}, "-(4/τ) σ(τ (r-1)) A"),
    Variant("dapo, engine's weights", GRPO | {"loss_type": "dapo"}, TOKEN | {"mismatch_correction": "truncate", "mismatch_high": CAP}, "min(π/μ, C) × loss", weighted=True),
    Variant("dapo, entropy bonus", GRPO | {"loss_type": "dapo", "entropy_coef": 0.02}, TOKEN | {"entropy_coef": 0.02}, "- c mean_t H_t"),
    Variant("grpo, entropy bonus", GRPO | {"entropy_coef": 0.02}, SEQUENCE | {"entropy_coef": 0.02}, "- c mean_it H, or - c mean_i mean_t H",
            "TRL takes the bonus as a mean over tokens whatever the loss; here it is reduced as the loss is. A convention: neither is in a paper"),
)  # fmt: skip


@dataclass(frozen=True)
class Batch:
    """Responses in groups, their rewards, and what old policies gave them. Every tensor is float64."""

    prompts: list[Tensor]
    responses: list[Tensor]
    rewards: list[float]
    old: Tensor
    reference: Tensor
    sampler: Tensor

    @property
    def mask(self) -> Tensor:
        return mask_from_lengths(torch.tensor([len(r) for r in self.responses]))


def make_model(seed: int = 0) -> LlamaForCausalLM:
    """A random decoder in float64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        config = LlamaConfig(vocab_size=VOCAB, eos_token_id=1, pad_token_id=2, bos_token_id=0, **sizes)
        return LlamaForCausalLM(config).double().train()


def make_batch(model: LlamaForCausalLM) -> Batch:
    """Ragged responses, and policies so far off that every bound is active somewhere."""
    g = torch.Generator().manual_seed(1)
    prompts = [torch.randint(3, VOCAB, (2 + i,), generator=g) for i in range(PROMPTS) for _ in range(GROUP)]
    lengths = [1 + int(torch.randint(LIMIT, (1,), generator=g)) for _ in prompts]
    lengths[0] = LIMIT
    responses = [torch.randint(3, VOCAB, (n,), generator=g) for n in lengths]
    rewards = [float(torch.randint(5, (1,), generator=g)) / 4 for _ in prompts]
    with torch.no_grad():
        now = Actor(model).forward(collate(prompts, responses)).logprobs
    shift = [torch.randn(now.shape, generator=g, dtype=torch.float64) for _ in range(3)]
    return Batch(prompts, responses, rewards, now + 0.5 * shift[0], now + 0.5 * shift[1], now + 0.5 * shift[2])


# TRL's side.


def _tokenizer() -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({f"<{i}>": i for i in range(VOCAB)}, unk_token="<3>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<1>", pad_token="<2>", bos_token="<0>")


def their_trainer(model: LlamaForCausalLM, batch: Batch, settings: dict[str, Any], folder: str) -> Any:
    """TRL's trainer, which samples nothing: the responses are given."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    class Given(GRPOTrainer):
        def _generate(self, prompts: list[str]) -> tuple[Any, ...]:
            ids = ([p.tolist() for p in batch.prompts], [r.tolist() for r in batch.responses])
            return (*ids, None, ["" for _ in batch.responses], None, {}, None, None)

        def _get_per_token_logps_and_entropies(self, model: Any, *inputs: Any, **options: Any) -> tuple[Any, ...]:
            return plain_logprobs(model, *inputs)

    def paid(completions: list[str], **kwargs: Any) -> list[float]:
        return batch.rewards

    count = len(batch.responses)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args = GRPOConfig(
            output_dir=folder, use_cpu=True, bf16=False, report_to=[], save_strategy="no", logging_strategy="no", num_generations=GROUP,
            per_device_train_batch_size=count, gradient_accumulation_steps=1, max_completion_length=LIMIT, temperature=1.0,
            gradient_checkpointing=False, max_steps=1, **settings | {"beta": 0.0},  # else it would look for a reference on the hub
        )  # fmt: skip
        rows = Dataset.from_dict({"prompt": ["<3>"] * count})
        return Given(model=model, reward_funcs=paid, args=args, train_dataset=rows, processing_class=_tokenizer())


def plain_logprobs(model: Any, ids: Tensor, mask: Tensor, count: int, *ignored: Any) -> tuple[Tensor, Tensor, None]:
    """Logprobs and entropy of the last `count` tokens. TRL's own computes in float32 whatever the model's precision, which would
    hide what is smaller than that; a row of the table compares it with ours."""
    logits = model(input_ids=ids, attention_mask=mask).logits[:, -count - 1 : -1]
    logprobs = torch.log_softmax(logits, -1)
    return logprobs.gather(2, ids[:, -count:, None])[..., 0], -(logprobs.exp() * logprobs).sum(-1), None


def their_inputs(trainer: Any, batch: Batch, masked: Sequence[int]) -> dict[str, Any]:
    """What TRL makes of the responses, with the old policies' logprobs that the batch comes with."""
    inputs = trainer._generate_and_score_completions([{"prompt": "<3>"}] * len(batch.responses))
    inputs |= {"old_per_token_logps": batch.old, "ref_per_token_logps": batch.reference}
    for row in masked:  # as `mask_truncated_completions` does
        inputs["completion_mask"][row] = 0
    inputs["num_items_in_batch"] = inputs["completion_mask"].sum()
    return inputs


def their_loss(trainer: Any, inputs: dict[str, Any], variant: Variant, weights: Tensor) -> Tensor:
    """The loss of an optimizer step, as TRL adds it up over micro-batches."""
    trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation = variant.parts
    trainer.beta = variant.theirs["beta"]
    if variant.weighted:
        trainer.use_vllm = trainer.vllm_importance_sampling_correction = True
        inputs = inputs | {"importance_sampling_ratio": weights}
    total = torch.zeros((), dtype=torch.float64)
    for rows in torch.arange(len(weights)).chunk(variant.parts):
        some = {
            name: v[rows] if isinstance(v, Tensor) and v.dim() and len(v) == len(weights) else v
            for name, v in inputs.items()
        }
        total = total + trainer._compute_loss(trainer.model, some)
    return total


# Our side.


def our_config(variant: Variant) -> Config:
    return merge(Config(), by_section({"max_new_tokens": LIMIT, **variant.ours}))


def our_loss(model: LlamaForCausalLM, batch: Batch, variant: Variant, advantages: Tensor) -> Tensor:
    """The loss of an optimizer step, as the learner adds it up over micro-batches."""
    config = our_config(variant)
    mask = batch.mask.clone()
    mask[list(variant.masked)] = False
    step = Step(config, config.algo.kl_coef, Meter(), StepSize.from_mask(mask))
    actor, total = Actor(model), torch.zeros((), dtype=torch.float64)
    for rows in torch.arange(len(mask)).chunk(variant.parts):
        some = [rows.tolist(), slice(0, max(len(batch.responses[i]) for i in rows.tolist()))]
        sequences = collate([batch.prompts[i] for i in rows], [batch.responses[i] for i in rows])
        cut = {name: getattr(batch, name)[rows][:, some[1]] for name in ("old", "reference", "sampler")}
        part = MicroBatch(
            sequences,
            logprobs=cut["old"],
            ref_logprobs=cut["reference"],
            advantages=advantages[rows, None].expand(-1, cut["old"].size(1)),
            mask=mask[rows][:, some[1]],
            sampler_logprobs=cut["sampler"],
        )
        total = total + policy_loss(actor.forward(sequences, 1.0, bool(config.algo.entropy_coef)), part, step)
    return total


# The comparison.


@dataclass
class Row:
    """One line of the table."""

    name: str
    loss: float
    gradient: float
    equation: str
    difference: str = ""

    exact: float = EXACT

    @property
    def agrees(self) -> bool:
        return self.loss < self.exact and self.gradient < self.exact

    @property
    def expected(self) -> bool:
        """True if it agrees where it should and differs where a difference is explained."""
        return self.agrees is not bool(self.difference)


def gradients(model: LlamaForCausalLM, loss: Tensor) -> Tensor:
    """Of all weights in one vector."""
    model.zero_grad()
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


def compare(variant: Variant, folder: str) -> Row:
    """Both sides' loss and gradient from the same weights."""
    model = make_model()
    batch = make_batch(model)
    weights = torch.exp(batch.old - batch.sampler).clamp(max=CAP)
    trainer = their_trainer(model, batch, variant.theirs, folder)
    inputs = their_inputs(trainer, batch, variant.masked)
    theirs = their_loss(trainer, inputs, variant, weights)
    grad = gradients(model, theirs)
    ours = our_loss(model, batch, variant, inputs["advantages"].double())
    off = (gradients(model, ours) - grad).abs().max()
    return Row(variant.name, float((ours - theirs).abs()), float(off), variant.equation, variant.difference)


def compare_logprobs(folder: str) -> Row:
    """Both sides' logprobs and entropies of response tokens (TRL's are float32)."""
    from trl import GRPOTrainer

    model = make_model()
    batch = make_batch(model)
    trainer = their_trainer(model, batch, GRPO, folder)
    inputs = their_inputs(trainer, batch, ())
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    seen = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    theirs = GRPOTrainer._get_per_token_logps_and_entropies(
        trainer, trainer.model, ids, seen, inputs["completion_ids"].size(1), compute_entropy=True
    )
    ours = Actor(model).forward(collate(batch.prompts, batch.responses), 1.0, True)
    off = [
        float(((a - b).abs() * batch.mask).max())
        for a, b in zip(theirs[:2], (ours.logprobs, ours.entropy), strict=True)
    ]
    return Row("logprobs, entropy", max(off), 0.0, "log softmax(z)_y, -sum p log p", exact=FLOAT32)


ADVANTAGES = {"grpo": "group", "dr_grpo": "none"}
"""Our estimator -> TRL's `scale_rewards`."""


def compare_advantages(estimator: str, folder: str) -> Row:
    """Both sides' advantages (TRL's are float32)."""
    model = make_model()
    batch = make_batch(model)
    trainer = their_trainer(model, batch, GRPO | {"scale_rewards": ADVANTAGES[estimator]}, folder)
    theirs = their_inputs(trainer, batch, ())["advantages"]
    rewards = torch.zeros(batch.mask.shape, dtype=torch.float64)
    rewards[:, 0] = torch.tensor(batch.rewards)
    groups = torch.arange(len(batch.rewards)) // GROUP
    ours = get_estimator(estimator).function(AdvantageInputs(rewards, None, batch.mask, 1.0, 1.0, groups=groups))
    off = float((ours.advantages[:, 0] - theirs).abs().max())
    return Row(
        f"advantages: {estimator}",
        off,
        0.0,
        "(R - mean) / (std + 1e-4)" if estimator == "grpo" else "R - mean",
        exact=FLOAT32,
    )


def table(rows: Sequence[Row]) -> str:
    """In Markdown, differences explained below."""
    lines = ["| variant | loss | gradient | equation |", "|---|---|---|---|"]
    for row in rows:
        mark = "" if row.agrees or not row.difference else " *"
        lines.append(
            f"| {row.name}{mark} | {row.loss:.1e} | {row.gradient:.1e} | `{row.equation.replace('|', chr(92) + '|')}` |"
        )
    notes = [f"- *{row.name}*: {row.difference}." for row in rows if row.difference]
    return "\n".join([*lines, "", *notes])


def all_rows(variants: Sequence[Variant] = VARIANTS) -> list[Row]:
    """Every comparison with TRL's GRPO."""
    with tempfile.TemporaryDirectory() as folder:
        before = [compare_logprobs(folder), *(compare_advantages(name, folder) for name in ADVANTAGES)]
        return before + [compare(v, folder) for v in variants]


RESULTS = Path(__file__).parent / "results" / "oracles.md"


def main() -> int:
    """Print the table; 1 if a variant differs that must not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help=f"write benchmarks/results/{RESULTS.name}")
    arguments = parser.parse_args()
    rows, of_ppo = all_rows(), ppo_oracle.rows()
    head = ", ".join(f"{name} {version(name)}" for name in ("trl", "torch", "transformers"))
    text = (
        f"# oracles\n\n{head}; float64 on the CPU\n\n{table(rows)}\n\n"
        f"PPO: trl {ppo_oracle.TRL}\n\n{ppo_oracle.table(of_ppo)}\n"
    )
    print(text)
    if arguments.save:
        RESULTS.write_text(text)
    return int(not (all(row.expected for row in rows) and all(row.expected for row in of_ppo)))


if __name__ == "__main__":
    sys.exit(main())
