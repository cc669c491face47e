"""The example of ColossalChat's `PPOTrainer` (reference document 1) as it stands: constructor and `fit`, over Boosters of one's own
and the batches that its loaders yield."""

from pathlib import Path

import pytest
import torch
from seed_examples import COATI_TRAINER
from tiny_models import tiny_model
from torch.utils.data import DataLoader
from trainer_harness import LetterTokenizer, share_of_f
from transformers import AutoModelForCausalLM

from rlvr import Critic, RLVRRewardModel
from rlvr.boost.optimizer import lr_schedule


def padded(batch: list[dict]) -> dict:
    """As coati's collators: token ids padded on the left to the longest, and the texts of the answers."""
    width = max(len(row["ids"]) for row in batch)
    ids = [[1] * (width - len(row["ids"])) + row["ids"] for row in batch]
    mask = [[0] * (width - len(row["ids"])) + [1] * len(row["ids"]) for row in batch]
    return {
        "input_ids": torch.tensor(ids),
        "attention_mask": torch.tensor(mask),
        "gt_answer": [row["answer"] for row in batch],
    }


@pytest.mark.usefixtures("process")
def test_constructor_and_fit(tmp_path, monkeypatch) -> None:
    from colossalai.booster import Booster
    from colossalai.booster.plugin import TorchDDPPlugin
    from colossalai.cluster import DistCoordinator

    monkeypatch.chdir(tmp_path)
    actor, critic, tokenizer = tiny_model(), Critic(tiny_model().base_model), LetterTokenizer()
    actor_optim, critic_optim = (torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (actor, critic))
    rows = [{"ids": [5 + i % 20, *range(6, 6 + i % 3)], "answer": "F"} for i in range(256)]
    named = {
        "actor_booster": Booster(plugin=TorchDDPPlugin()),
        "critic_booster": Booster(plugin=TorchDDPPlugin()),
        "actor": actor,
        "critic": critic,
        "reward_model": RLVRRewardModel([share_of_f], tokenizer),
        "ref_model": tiny_model(),
        "actor_optim": actor_optim,
        "critic_optim": critic_optim,
        "actor_lr_scheduler": lr_schedule(actor_optim, 20),
        "critic_lr_scheduler": lr_schedule(critic_optim, 20),
        "tokenizer": tokenizer,
        "coordinator": DistCoordinator(),
        "train_prompt_dataloader": DataLoader(rows, batch_size=128, collate_fn=padded),  # type: ignore[arg-type]
        "train_pretrain_dataloader": None,
    }
    before = {name: value.clone() for name, value in actor.state_dict().items()}
    code = COATI_TRAINER.replace("coati.trainer", "rlvr.trainer").replace("num_episodes=10", "num_episodes=1")
    small = code.replace("coordinator=coordinator,", "coordinator=coordinator, max_new_tokens=8,")
    exec(small, named)

    trainer = named["trainer"]
    assert trainer.progress.optimizer_steps == 1 * 5 * 2  # episodes x passes x (256 samples / 128 in a step)
    assert any(not torch.equal(before[name], value) for name, value in actor.state_dict().items())
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoints" / "actor" / "modeling")
    assert all(torch.equal(value, actor.state_dict()[name]) for name, value in saved.state_dict().items())
    Critic.from_pretrained(tmp_path / "checkpoints" / "critic" / "modeling")
    assert list(Path(tmp_path / "logs").rglob("events.out.tfevents*"))
