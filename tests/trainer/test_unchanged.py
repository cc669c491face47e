"""What makes a step fast changes nothing: generation, losses and all gradients in float64, against the plain way.

The trainer shares the prefill of equal prompts, keeps its own cache, runs batches without padding and masks, computes what rows
begin with alike once, cuts mini-batches into micro-batches, and projects to the vocabulary in blocks of chunks at response
positions only. The plain way: one big padded batch with an attention mask and position ids, all logits, autograd.
"""

import copy
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import tiny_model
from trainer_harness import CPU, LetterTokenizer, PromptLoader, prompts

from rlvr.boost.plugins import make_booster
from rlvr.config import ParallelConfig
from rlvr.core import logprobs as head
from rlvr.data.sampling import PromptSampler
from rlvr.models import attention
from rlvr.models.actor import Actor
from rlvr.models.batch import collate
from rlvr.models.critic import Critic
from rlvr.rollout import decode
from rlvr.rollout.engine import Engine, Rollout
from rlvr.scorers.rules import RLVRRewardModel
from rlvr.trainer.callbacks import Callback
from rlvr.trainer.ppo import PPOTrainer

pytestmark = pytest.mark.usefixtures("process", "exact_norms")
LR, KL_COEF, LAM, TEMPERATURE, PROMPTS, GROUP = 0.5, 0.1, 0.9, 0.8, 6, 2
EXACT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}


def count_of_letters(response: str) -> float:
    """Exact in float32, too."""
    return float(sum(map(ord, response)) % 7)


def models(family: str) -> tuple[Any, Any, Any]:
    """Policy, another policy as the reference, and a critic's decoder, in float64."""
    return tuple(tiny_model(family, seed=seed).double() for seed in (0, 1, 2))  # type: ignore[return-value]


def make_trainer(family: str, **settings: Any) -> PPOTrainer:
    policy, reference, other = models(family)
    actor, critic = Actor(policy, chunk_tokens=7), Critic(other.base_model).double()
    booster = [make_booster(ParallelConfig(plugin="ddp", mixed_precision="fp32"), CPU, 0.0) for _ in range(2)]
    optimizers = [torch.optim.SGD(role.parameters(), lr=LR) for role in (actor, critic)]
    return PPOTrainer(
        *booster, actor, critic, RLVRRewardModel([count_of_letters], LetterTokenizer()), reference,
        *optimizers, None, None, LetterTokenizer(),  # type: ignore[arg-type]
        kl_coef=KL_COEF, train_batch_size=3, accumulation_steps=4, max_new_tokens=9, temperature=TEMPERATURE,
        stop_ids=tuple(range(8)), settings={
            "entropy_coef": 0.01, "micro_batch_tokens": 40, "generation_batch_size": 5, "lam": LAM, "num_generations": GROUP, "grad_clip": 0.0,
            **settings,
        },
    )  # fmt: skip


class Watch(Callback):
    """Keeps responses, the logits that they were drawn from, and the loss and gradients of each optimizer step."""

    def __init__(self, trainer: PPOTrainer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[SimpleNamespace] = []
        self.logits: list[torch.Tensor] = []
        self.passes = 0
        for name, role in (("actor", trainer.actor), ("critic", trainer.critic)):
            monkeypatch.setattr(role, "backward", self._backward(name, role.backward))
            monkeypatch.setattr(role, "step", self._step(name, role, role.step))
        forward = decode.Decoder._forward
        monkeypatch.setattr(decode.Decoder, "_forward", lambda *args: self._seen(forward(*args), args[0].rows))
        prefill = decode.Decoder._prefill
        monkeypatch.setattr(decode.Decoder, "_prefill", lambda *args: self._seen(prefill(*args), args[0].rows))
        self.losses: dict[str, float] = {"actor": 0.0, "critic": 0.0}

    def _seen(self, logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        whole = logits.new_full((PROMPTS * GROUP, logits.size(1)), torch.nan)
        whole[rows] = logits
        self.logits.append(whole)
        return logits

    def _backward(self, name: str, plain: Any) -> Any:
        def backward(loss: torch.Tensor) -> None:
            self.losses[name] += loss.item()
            self.passes += 1
            plain(loss)

        return backward

    def _step(self, name: str, role: Any, plain: Any) -> Any:
        def step() -> float:
            gradients = [p.grad.clone() for p in role.unwrapped.parameters() if p.grad is not None]
            self.steps.append(SimpleNamespace(role=name, loss=self.losses[name], gradients=gradients))
            self.losses[name] = 0.0
            return plain()

        return step

    def on_make_experience_end(self, trainer: Any, collected: Any) -> None:
        self.experience = collected.experience


class Plain:
    """The same two optimizer steps with nothing left out. `action_masks`: the tokens that the policy chose, of all that are computed."""

    def __init__(
        self,
        family: str,
        prompt_ids: list[torch.Tensor],
        response_ids: list[torch.Tensor],
        action_masks: list[torch.Tensor] | None = None,
        gamma: float = 1.0,
        by_turn: bool = False,
    ) -> None:
        policy, self.reference, other = models(family)
        self.gamma, self.by_turn = gamma, by_turn
        self.actor, self.critic = policy, Critic(other.base_model).double()
        self.prompts, self.responses = prompt_ids, response_ids
        self.batch = collate(prompt_ids, response_ids, pad_id=1, padding_side="left")
        self.mask = self.batch.response_mask
        if action_masks is not None:
            self.mask = torch.nn.utils.rnn.pad_sequence(action_masks, batch_first=True)
        with torch.no_grad():
            self.old, _ = self.logprobs(self.actor)
            self.ref, _ = self.logprobs(self.reference)
            self.old_values = self.values()
        self.targets()

    def inputs(self) -> dict[str, torch.Tensor]:
        b = self.batch
        return {"input_ids": b.input_ids, "attention_mask": b.attention_mask, "position_ids": b.position_ids}

    def before(self, x: torch.Tensor) -> torch.Tensor:
        """[B, R, ...] of [B, T, ...] at the places before the response tokens."""
        return torch.stack([row[places - 1] for row, places in zip(x, self.batch.response_index, strict=True)])

    def logprobs(self, model: Any) -> tuple[torch.Tensor, torch.Tensor]:
        logp = torch.log_softmax(self.before(model(**self.inputs()).logits) / TEMPERATURE, -1)
        return logp.gather(-1, self.batch.response_ids[..., None])[..., 0], -(logp.exp() * logp).sum(-1)

    def values(self) -> torch.Tensor:
        hidden = self.critic.backbone(**self.inputs()).last_hidden_state
        return self.before(self.critic.value_head(hidden))[..., 0]

    def targets(self) -> None:
        """Returns, and whitened advantages, token by token."""
        self.advantages, self.returns = torch.zeros_like(self.old), torch.zeros_like(self.old)
        for row, response in enumerate(self.responses):
            following = later = 0.0
            mine = [t for t in range(len(response)) if self.mask[row, t]]
            for t in reversed(mine):
                reward = -KL_COEF * float(self.old[row, t] - self.ref[row, t])
                if t == mine[-1]:
                    turn = response[max([u + 1 for u in range(t) if not self.mask[row, u]], default=0) :]
                    reward += count_of_letters(LetterTokenizer().decode(turn.tolist(), skip_special_tokens=True))
                value = float(self.old_values[row, t])
                ends = t == mine[-1] or t + 1 not in mine
                gamma, lam = (self.gamma, LAM) if ends or not self.by_turn else (1.0, 1.0)
                later = reward + gamma * following - value + gamma * lam * later
                following = value
                self.advantages[row, t], self.returns[row, t] = later, later + value
        real = self.advantages[self.mask]
        self.advantages = (self.advantages - real.mean()) / (real.var(unbiased=False) + 1e-8).sqrt()

    def step(self, role: str) -> tuple[float, list[torch.Tensor]]:
        """Loss and gradients; then moves the weights."""
        module = self.actor if role == "actor" else self.critic
        module.zero_grad()
        loss = self.policy_loss() if role == "actor" else self.value_loss()
        loss = loss[self.mask].mean()
        loss.backward()
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        with torch.no_grad():
            for p in module.parameters():
                if p.grad is not None:
                    p -= LR * p.grad
        return loss.item(), [g.clone() for g in gradients]

    def policy_loss(self) -> torch.Tensor:
        new, entropy = self.logprobs(self.actor)
        ratio = (new - self.old).exp()
        clipped = torch.minimum(ratio * self.advantages, ratio.clamp(0.8, 1.2) * self.advantages)
        return -clipped - 0.01 * entropy

    def value_loss(self) -> torch.Tensor:
        new = self.values()
        near = new.clamp(self.old_values - 0.2, self.old_values + 0.2)
        return 0.5 * torch.maximum((new - self.returns) ** 2, (near - self.returns) ** 2)


@pytest.mark.parametrize("products", [False, True], ids=["kernel", "products"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen2-tied"])
def test_a_step_is_that_of_the_plain_way(family, products, monkeypatch) -> None:
    """Two optimizer steps, so that the second has ratios other than 1. `products`: attention as bfloat16 has it on CPUs."""
    monkeypatch.setattr(head, "CPU_BLOCK", 100)  # two or three tokens
    if products:
        monkeypatch.setattr(attention, "dtype_of_products", lambda query, kwargs: query.dtype)
        monkeypatch.setattr(attention, "BLOCK_PAIRS", 60)
    trainer = make_trainer(family)
    watch = Watch(trainer, monkeypatch)
    trainer.callbacks.append(watch)
    trainer.fit(1, 1, 2, PromptLoader(prompts(PROMPTS), PromptSampler(PROMPTS, PROMPTS, 0), 0, 1))

    items = watch.experience
    assert trainer.actor.unwrapped.packs and watch.passes > 2 * len(watch.steps)  # what is tested does happen
    plain = Plain(family, [i.prompt_ids for i in items], [i.response_ids for i in items])
    assert len({len(i.response_ids) for i in items}) > 2 and len({len(i.prompt_ids) for i in items}) > 1
    assert [s.role for s in watch.steps] == ["actor", "critic"] * 2
    for step in watch.steps:
        loss, gradients = plain.step(step.role)
        assert step.loss == pytest.approx(loss, rel=1e-10, abs=1e-10)
        assert len(step.gradients) == len(gradients)
        for ours, theirs in zip(step.gradients, gradients, strict=True):
            torch.testing.assert_close(ours, theirs, **EXACT)
    assert (plain.logprobs(plain.actor)[0] - plain.old).abs().max() > 0.01  # the policy has moved


class TurnsEngine(Engine):
    """Takes what another engine samples as the policy's first turn; an environment's tokens and two more turns follow, of tokens that
    are made up. Some responses are a single turn."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def stream(self, *args: Any) -> Iterator[list[Rollout]]:
        lots = torch.Generator().manual_seed(1)
        for batch in self.engine.stream(*args):
            yield [self._longer(rollout, lots) for rollout in batch]

    @staticmethod
    def _longer(rollout: Rollout, lots: torch.Generator) -> Rollout:
        ids, mask = [rollout.response_ids], [torch.ones(len(rollout.response_ids)).bool()]
        for turn in range(2 * int(torch.randint(3, (1,), generator=lots))):
            count = int(torch.randint(1, 5, (1,), generator=lots))
            ids.append(torch.randint(2, 30, (count,), generator=lots))
            mask.append(torch.full((count,), turn % 2 == 1))
        return Rollout(rollout.prompt_ids, torch.cat(ids), "stop", None, torch.cat(mask))


@pytest.mark.parametrize("by", ["token", "turn"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_step_over_turns_is_that_of_the_plain_way(family, by, monkeypatch) -> None:
    """An environment's tokens are read and nothing else: no action, no step of GAE, no part of any mean."""
    trainer = make_trainer(family, gamma=0.9, discount_by=by)
    trainer.maker.engine = TurnsEngine(trainer.maker.engine)
    watch = Watch(trainer, monkeypatch)
    trainer.callbacks.append(watch)
    trainer.fit(1, 1, 2, PromptLoader(prompts(PROMPTS), PromptSampler(PROMPTS, PROMPTS, 0), 0, 1))

    items = watch.experience
    masks = [i.action_mask for i in items]
    assert {int((~mask).any()) for mask in masks} == {0, 1} and watch.passes > 2 * len(watch.steps)
    tokens = ([getattr(i, name) for i in items] for name in ("prompt_ids", "response_ids"))
    plain = Plain(family, *tokens, masks, 0.9, by == "turn")
    for row, item in enumerate(items):
        for name, whole in (("logprobs", plain.old), ("values", plain.old_values), ("returns", plain.returns)):
            torch.testing.assert_close(getattr(item, name), whole[row][plain.mask[row]], **EXACT)
    for step in watch.steps:
        loss, gradients = plain.step(step.role)
        assert step.loss == pytest.approx(loss, rel=1e-10, abs=1e-10)
        for ours, theirs in zip(step.gradients, gradients, strict=True):
            torch.testing.assert_close(ours, theirs, **EXACT)
    assert (plain.logprobs(plain.actor)[0] - plain.old)[plain.mask].abs().max() > 0.01


@pytest.mark.parametrize("alike", [0, 20], ids=["", "alike"])
@pytest.mark.parametrize("products", [False, True], ids=["kernel", "products"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen2-tied"])
def test_tokens_are_drawn_from_the_plain_logits(family, products, alike, monkeypatch) -> None:
    """Logits of every decoding step: with a shared prefill, one for what all prompts begin with, padded prompts, our cache, and rows
    leaving the batch."""
    if products:
        monkeypatch.setattr(attention, "dtype_of_products", lambda query, kwargs: query.dtype)
    trainer = make_trainer(family)
    watch = Watch(trainer, monkeypatch)
    model = copy.deepcopy(trainer.actor.unwrapped.model)
    beginning = tuple(i % 30 + 2 for i in range(alike))
    given = [replace(prompt, ids=(*beginning, *prompt.ids)) for prompt in prompts(PROMPTS) for _ in range(GROUP)]
    order = sorted(range(len(given)), key=lambda i: len(given[i].ids))
    rollouts = trainer.maker.engine.generate(trainer.actor.unwrapped.model, given, trainer.maker.sampling, (0,))
    assert len({len(r.response_ids) for r in rollouts}) > 2
    for place, index in enumerate(order):
        prompt, response = torch.tensor(given[index].ids), rollouts[index].response_ids
        with torch.no_grad():
            expected = model(torch.cat([prompt, response])[None], use_cache=False).logits[0, len(prompt) - 1 : -1]
        got = torch.stack([logits[place] for logits in watch.logits[: len(response)]])
        torch.testing.assert_close(got, expected, **EXACT)
