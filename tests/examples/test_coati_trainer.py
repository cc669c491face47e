"""The example of ColossalChat's `PPOTrainer` (reference document 1): its constructor and `fit`, over Boosters of one's own."""

from pathlib import Path

import pytest
import torch
from tiny_models import tiny_model
from trainer_harness import LetterTokenizer, loader, share_of_f
from transformers import AutoModelForCausalLM

from rlvr import Critic, PPOTrainer, RLVRRewardModel
from rlvr.boost.optimizer import lr_schedule


@pytest.mark.usefixtures("process")
def test_constructor_and_fit(tmp_path) -> None:
    from colossalai.booster import Booster
    from colossalai.booster.plugin import TorchDDPPlugin
    from colossalai.cluster import DistCoordinator

    actor, critic, ref_model = tiny_model(), Critic(tiny_model().base_model), tiny_model()
    tokenizer = LetterTokenizer()
    reward_model = RLVRRewardModel([share_of_f], tokenizer)
    actor_booster, critic_booster = Booster(plugin=TorchDDPPlugin()), Booster(plugin=TorchDDPPlugin())
    actor_optim, critic_optim = (torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (actor, critic))
    actor_lr_scheduler, critic_lr_scheduler = (lr_schedule(o, 20) for o in (actor_optim, critic_optim))
    train_prompt_dataloader = loader(per_step=16)
    before = {name: value.clone() for name, value in actor.state_dict().items()}

    trainer = PPOTrainer(
        actor_booster=actor_booster,
        critic_booster=critic_booster,
        actor=actor,
        critic=critic,
        reward_model=reward_model,
        initial_model=ref_model,
        actor_optim=actor_optim,
        critic_optim=critic_optim,
        actor_lr_scheduler=actor_lr_scheduler,
        critic_lr_scheduler=critic_lr_scheduler,
        tokenizer=tokenizer,
        kl_coef=0.1,
        ptx_coef=0.0,
        train_batch_size=2,
        accumulation_steps=8,
        save_dir=tmp_path / "checkpoints",
        coordinator=DistCoordinator(),
        max_new_tokens=8,
    )

    trainer.fit(
        num_episodes=2,
        num_collect_steps=2,
        num_update_steps=5,
        prompt_dataloader=train_prompt_dataloader,
        pretrain_dataloader=None,
        log_dir=str(tmp_path / "logs"),
        use_wandb=False,
    )

    assert trainer.progress.optimizer_steps == 2 * 5 * 2  # episodes x passes x (32 samples / 16 in a step)
    assert any(not torch.equal(before[name], value) for name, value in actor.state_dict().items())
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoints" / "actor" / "modeling")
    assert all(torch.equal(value, actor.state_dict()[name]) for name, value in saved.state_dict().items())
    Critic.from_pretrained(tmp_path / "checkpoints" / "critic" / "modeling")
    assert list(Path(tmp_path / "logs").rglob("events.out.tfevents*"))
