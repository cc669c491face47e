"""A saved model is used as it was trained, with transformers alone."""

import json
import re
from pathlib import Path

import pytest
import torch
import yaml
from family_tokenizers import family
from saved_models import save_micro_model
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from rlvr.cli.main import main
from rlvr.errors import UserError
from rlvr.evaluation.policy import Policy
from rlvr.prompting.conversation import (
    SAVED_TEMPLATE,
    Conversation,
    ConversationTemplate,
    attach_chat_template,
    choose_template,
)
from rlvr.prompting.template import template_dir, template_names

MICRO = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
OWN_TAGS = {
    "think_start": {"text": "<|think|>"},
    "think_end": {"text": "<|done|>"},
    "answer_start": {"text": "<|answer|>"},
    "answer_end": {"text": "<|stop|>"},
}
PAGE = Path(__file__).parents[2] / "docs" / "hand_on.md"
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


@pytest.mark.parametrize("name", [name for name in template_names() if name not in ("generic", "plain")])
def test_the_template_goes_with_the_tokenizer(name: str, tmp_path: Path) -> None:
    """A saved tokenizer gives the template back: prompts, tags and stops, whatever `auto` would have made of it."""
    tokenizer = family(name)
    want = Conversation(ConversationTemplate.load(name), tokenizer)
    prompt = want.prompt_text(QUESTION)
    attach_chat_template(LlamaForCausalLM(LlamaConfig(**MICRO)), tokenizer, want)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    template = choose_template("auto", loaded)
    found = Conversation(template, loaded)
    assert found.prompt_text(QUESTION) == prompt and found.encode_prompt(QUESTION) == want.encode_prompt(QUESTION)
    for part in ("tags", "stop_ids", "stop_strings", "end_of_assistant", "system_in_user"):
        assert getattr(found, part) == getattr(want, part), part
    assert SAVED_TEMPLATE in template.source and choose_template("tiny", loaded).source.endswith("tiny.json")
    again = Conversation(choose_template("auto", loaded), loaded).saved_template()
    assert again == loaded.init_kwargs[SAVED_TEMPLATE]


def test_a_template_of_ones_own_is_found_again_by_chat_and_evaluation(tmp_path: Path, process, capsys) -> None:
    model = save_micro_model(tmp_path / "model")
    own = json.loads((template_dir() / "tiny.json").read_text())
    own |= {"system_message": "Think."} | {"response_format_tags": OWN_TAGS}
    path = tmp_path / "own.json"
    path.write_text(json.dumps(own))
    flags = "--reward_functions gsm8k_reward_fn --num_episodes 1 --experience_batch_size 8 --train_batch_size 8 " \
        "--max_new_tokens 6 --eval_samples 4 --max_samples 16 --max_length 160"  # fmt: skip
    run = tmp_path / "run"
    words = ["--pretrain", model, "--conversation_template_config", str(path), "--save_path", str(run)]
    assert main(["train", *words, *flags.split(), "--template_check", "warn"]) == 0
    policy = Policy.open(str(run), torch.device("cpu"))
    tokenizer = AutoTokenizer.from_pretrained(model)
    trained = Conversation(ConversationTemplate.load(str(path)), tokenizer)
    assert policy.conversation.tags == trained.tags and policy.conversation.tags.answer_start.text == "<|answer|>"
    assert policy.conversation.encode_prompt("2+3=?") == trained.encode_prompt("2+3=?")


@pytest.mark.parametrize(
    ("saved", "said"),
    [
        ("text", "rlvr_template in"),
        ({}, "chat_template"),
        (
            {"chat_template": "someone/else", "system_message": "", "stop_ids": None, "response_format_tags": "OWN"},
            "no jinja",
        ),
        ({"chat_template": None, "system_message": "", "stop_ids": None, "response_format_tags": "OWN"}, "no jinja"),
    ],
)
def test_a_saved_template_that_is_none_is_refused(saved, said: str) -> None:
    tokenizer = family("tiny")
    if isinstance(saved, dict) and saved.get("response_format_tags") == "OWN":
        saved = saved | {"response_format_tags": OWN_TAGS}
    tokenizer.init_kwargs[SAVED_TEMPLATE] = saved
    with pytest.raises(UserError, match=said):
        choose_template("auto", tokenizer)


def test_the_pipeline_of_transformers_asks_as_training_did(tmp_path: Path, process, monkeypatch, capsys) -> None:
    from transformers import pipeline

    model = save_micro_model(tmp_path / "model")
    flags = "--dataset builtin --max_steps 1 --train_batch_size 4 --eval_samples 4 --max_samples 16 --max_length 160"
    assert main(["sft", "--pretrain", model, *flags.split(), "--save_path", str(tmp_path / "runs" / "mine")]) == 0
    pipe = pipeline("text-generation", str(tmp_path / "runs" / "mine" / "actor" / "modeling"))
    seen: list[list[int]] = []
    generate = pipe.model.generate
    pipe.model.generate = lambda **inputs: seen.append(inputs["input_ids"][0].tolist()) or generate(**inputs)
    torch.manual_seed(0)
    (answer,) = pipe([{"role": "user", "content": "2+3=?"}], max_new_tokens=4)
    conversation = Conversation(ConversationTemplate.load("tiny"), pipe.tokenizer)
    assert seen == [conversation.encode_prompt("2+3=?")]
    assert answer["generated_text"][-1]["role"] == "assistant"
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    torch.manual_seed(0)
    exec(compile(code.replace("}])", "}], max_new_tokens=4)"), PAGE.name, "exec"), {})
    assert capsys.readouterr().out.strip() == answer["generated_text"][-1]["content"].strip()
