"""A saved model is used as it was trained, with transformers alone."""

from pathlib import Path

import pytest
import yaml
from family_tokenizers import family
from saved_models import save_micro_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr.cli import main
from rlvr.conversation import Conversation, ConversationTemplate, template_names

QUESTION = 'Ann\'s "2" + 3?\n<answer>'


@pytest.mark.parametrize("name", [name for name in template_names() if name not in ("generic", "plain")])
def test_the_chat_template_makes_the_prompts_of_training(name: str) -> None:
    tokenizer = family(name)
    conversation = Conversation(ConversationTemplate.load(name), tokenizer)
    want = conversation.prompt_text(QUESTION)
    tokenizer.chat_template = conversation.chat_template()
    ask = [{"role": "user", "content": QUESTION}]
    assert tokenizer.apply_chat_template(ask, add_generation_prompt=True, tokenize=False) == want
    assert conversation.prompt_text(QUESTION) == want  # and it does not change its own
    if not conversation.system_in_user and conversation.template.system_message:
        own = [{"role": "system", "content": "Be brief."}, *ask]
        text = tokenizer.apply_chat_template(own, add_generation_prompt=True, tokenize=False)
        assert "Be brief." in text and conversation.template.system_message not in text


@pytest.mark.parametrize("command", ["train", "sft"])
def test_a_run_saves_what_transformers_needs(command: str, tmp_path: Path, process) -> None:
    model = save_micro_model(tmp_path / "model")
    flags = {
        "train": "--reward_functions gsm8k_reward_fn --num_episodes 1 --experience_batch_size 8 --train_batch_size 8 "
        "--max_new_tokens 6 --temperature 0.7 --eval_samples 4",
        "sft": "--dataset builtin --max_steps 1 --train_batch_size 4 --eval_samples 4",
    }[command]
    words = [
        command,
        "--pretrain",
        model,
        "--max_samples",
        "16",
        "--max_length",
        "160",
        "--save_path",
        str(tmp_path / "run"),
    ]
    data = ["--prompt_dataset", "builtin"] if command == "train" else []
    assert main([*words, *data, *flags.split()]) == 0
    folder = tmp_path / "run" / "actor" / "modeling"
    loaded, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    conversation = Conversation(ConversationTemplate.load("tiny"), tokenizer)
    ask = [{"role": "user", "content": "2+3=?"}]
    ids = tokenizer.apply_chat_template(ask, add_generation_prompt=True, return_tensors="pt", return_dict=True)[
        "input_ids"
    ]
    assert ids[0].tolist() == conversation.encode_prompt("2+3=?")
    assert set(conversation.stop_ids) <= set(loaded.generation_config.eos_token_id)
    if command == "train":
        card = (folder / "README.md").read_text()
        assert "- Data: builtin" in card and "- Rewards: gsm8k_reward_fn" in card and "| held-out accuracy |" in card
        assert yaml.safe_load(card.split("---")[1])["library_name"] == "transformers"
        assert loaded.generation_config.temperature == 0.7 and loaded.generation_config.max_new_tokens == 6
        assert loaded.generate(ids).shape[1] <= ids.shape[1] + 6
