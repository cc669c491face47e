"""TRL's side of `benchmarks.ppo_oracle`: one real step of its PPOTrainer (1.12.0, the last release with PPO) on given responses.

    python -m benchmarks.sides.trl_ppo_step FOLDER      # in an environment of its own; reads FOLDER/given.pt, writes theirs.pt

The step is `PPOTrainer.train` as it is. What it would sample and score is given: the function that generates returns the given
responses with the logits of the policy that sampled them, the one that scores the given scores and the values of the critic of that
time. What it computes is read where it calls `backward`.
"""

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from benchmarks.sides.trl_side import make_tokenizer
from benchmarks.sides.work import EOS, Work

READ = ("logprobs", "ref_logprobs", "advantages", "returns", "values", "rewards")
"""Variables of `train`, [B, R] each, that are given back."""


def llama(kind: Any, given: Mapping[str, Any], weights: str) -> Any:
    """A model of the given weights in float64."""
    from transformers import LlamaConfig

    model = kind(LlamaConfig(**given["config"])).double()
    model.load_state_dict(given[weights])
    return model


def critic(given: Mapping[str, Any], weights: str) -> Any:
    """A decoder with a linear head, as TRL wants it."""
    from transformers import LlamaForSequenceClassification

    def make(config: Any) -> Any:
        config.num_labels = 1
        return LlamaForSequenceClassification(config)

    return llama(make, given, weights)


def step(
    given: Mapping[str, Any], settings: Mapping[str, Any], *, pad: int, last_batch: bool, folder: Path
) -> dict[str, Any]:
    """What one step of the trainer computes: the variables that `READ` names, losses, and gradients by weight.

    Args:
        given: weights, queries, responses and scores.
        settings: arguments of `PPOConfig`.
        pad: token id of padding, which stands behind the responses.
        last_batch: the data ends with this batch.
        folder: where TRL may write.
    """
    import trl.experimental.ppo.ppo_trainer as module
    from datasets import Dataset
    from transformers import LlamaForCausalLM
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    policy, value = llama(LlamaForCausalLM, given, "policy"), critic(given, "critic")
    sampler, scorer = llama(LlamaForCausalLM, given, "old_policy"), critic(given, "old_critic")
    reward = critic(given, "old_critic")  # never run: scores are given
    rows, count = given["queries"], len(given["queries"])
    texts = torch.cat([rows, given["responses"].masked_fill(~given["tokens"], pad)], 1)
    whole_reward, whitened = module.get_reward, module.masked_whiten
    before: dict[str, Tensor] = {}

    def generation(model: Any, queries: Tensor, *ignored: Any) -> tuple[Tensor, Tensor]:
        logits = module.forward(sampler, texts, pad).logits[:, rows.size(1) - 1 : -1]
        return texts, logits / (args.temperature + 1e-7)

    def rewarded(model: Any, *inputs: Any) -> Any:
        return (None, given["scores"].clone(), None) if model is reward else whole_reward(scorer, *inputs)

    def whiten(values: Tensor, mask: Tensor, **options: Any) -> Tensor:
        before["advantages"] = values  # of the two calls the last is that of the advantages
        return whitened(values, mask, **options)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = settings.get("gradient_accumulation_steps", 1)
        args = PPOConfig(
            output_dir=str(folder), per_device_train_batch_size=count // parts, num_mini_batches=1, num_ppo_epochs=1,
            total_episodes=count, local_rollout_forward_batch_size=count, response_length=given["responses"].size(1),
            temperature=1.0 - 1e-7,  # it adds 1e-7
            learning_rate=1e-3, num_sample_generations=0, report_to=[], save_strategy="no", logging_strategy="no", use_cpu=True, bf16=False,
            gradient_checkpointing=False, sft_model_path="", reward_model_path="", **settings,
        )  # fmt: skip
        tokenizer = make_tokenizer(Work())
        tokenizer.pad_token_id, tokenizer.eos_token_id = pad, EOS
        data = Dataset.from_dict({"input_ids": rows.tolist() * (1 if last_batch else 2)})
        trainer = PPOTrainer(
            args=args, processing_class=tokenizer, model=policy, ref_model=llama(LlamaForCausalLM, given, "reference"), reward_model=reward,
            value_model=value, train_dataset=data, eval_dataset=data,
        )  # fmt: skip
    seen: list[dict[str, Any]] = []
    plain_backward = trainer.accelerator.backward

    def backward(loss: Tensor) -> None:
        plain_backward(loss)
        variables = sys._getframe(1).f_locals  # of `train`, which has no function for what is compared
        gradients = {
            f"{name}.{key}": p.grad.clone()
            for name, model in (("policy", policy), ("critic", value))
            for key, p in model.named_parameters()
        }
        losses = {name: variables[name].detach() / parts for name in ("pg_loss", "vf_loss")}
        seen.append({name: variables[name].detach().clone() for name in READ} | losses | {"gradients": gradients})

    trainer.accelerator.backward = backward
    module.batch_generation, module.get_reward, module.masked_whiten = generation, rewarded, whiten
    numpy.random.seed(0)  # by which it makes micro-batches
    try:
        trainer.train()
    finally:
        module.get_reward, module.masked_whiten = whole_reward, whitened
    assert len(seen) == parts, "one backward pass for each micro-batch"
    losses = {name: torch.stack([part[name] for part in seen]).sum() for name in ("pg_loss", "vf_loss")}
    return {name: seen[-1][name] for name in (*READ, "gradients")} | losses | {"unwhitened": before["advantages"]}


def main() -> None:
    folder = Path(sys.argv[1])
    given = torch.load(folder / "given.pt", weights_only=True)
    theirs = [step(given[case.pop("given")], **case, folder=folder) for case in given["cases"]]
    torch.save(theirs, folder / "theirs.pt")


if __name__ == "__main__":
    main()
