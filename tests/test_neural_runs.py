"""Whole runs by the command with neural rewards and environments, and what is said of reward models that differ."""

import json
from pathlib import Path

import pytest
import torch
from tiny_models import tiny_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

from rlvr.cli.main import main
from rlvr.models.loading import load_tokenizer
from rlvr.models.reward_model import RewardModel, RewardStatistics

pytestmark = pytest.mark.usefixtures("process", "tiny_cache")
SHORT = ["--num_episodes", "1", "--experience_batch_size", "8", "--train_batch_size", "4"]
FEW = ["--eval_samples", "4"]  # only where there is something to evaluate on


@pytest.fixture(scope="module")
def reward_model(tmp_path_factory, tiny_cache) -> str:
    """On the built-in model, with its tokenizer and statistics."""
    folder = tmp_path_factory.mktemp("rm")
    model = RewardModel.from_base("tiny", seed=1)
    with torch.no_grad():
        model.head.weight.mul_(20)
    model.statistics = RewardStatistics(mean=0.5, std=3.0)
    model.save_pretrained(folder)
    load_tokenizer("tiny").save_pretrained(folder)
    return str(folder)


def run(folder: Path, *flags: str, evaluates: bool = True) -> dict[str, float]:
    """The last row of metrics of a short run."""
    few = FEW if evaluates else []
    assert main(["train", *SHORT, *few, "--save_path", str(folder), *flags]) == 0
    return json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])


def test_a_neural_reward_with_a_rule_beside_it(reward_model, tmp_path, capsys) -> None:
    flags = ("--rm_checkpoint_path", reward_model, "--critic_checkpoint_path", reward_model)
    rule = ("--reward_functions", "gsm8k_reward_fn", "--reward_weights", "0")
    row = run(tmp_path / "a", *flags, *rule)
    assert row["objective/scores"] == pytest.approx(row["reward/reward_model"])
    assert "outcome/correct" in row and "reward/gsm8k_reward_fn" in row
    assert "reward_model" in capsys.readouterr().out.split("episodes")[0]
    fixed = run(tmp_path / "b", *flags, *rule, "--reward_normalisation", "fixed", "--rm_weight", "2")
    assert fixed["objective/scores"] == pytest.approx(2 * (row["reward/reward_model"] - 0.5) / 3.0, abs=1e-5)
    assert fixed["reward/reward_model/raw"] == pytest.approx(row["reward/reward_model"], abs=1e-5)


def test_prompts_without_answers_will_do_for_a_neural_reward(reward_model, tmp_path) -> None:
    data = tmp_path / "prompts.jsonl"
    data.write_text("\n".join(json.dumps({"text": f"{a}+{a}"}) for a in range(10, 30)))
    running = ("--reward_normalisation", "running", "--prompt_dataset", str(data))
    row = run(tmp_path / "run", "--rl_reward_model_path", reward_model, *running, evaluates=False)
    assert abs(row["objective/scores"]) < abs(row["reward/reward_model/raw"]) + 1


def test_objectives_by_name_need_no_list_of_functions(reward_model, tmp_path) -> None:
    objectives = {"correctness": 1.0, "formatting": 0.1, "reward_model": 0.5}
    flags = ("--rl_env_type", "multi_objective", "--rl_multi_objective", "--rl_reward_weights", json.dumps(objectives))
    row = run(tmp_path / "run", *flags, "--rm_checkpoint_path", reward_model)
    want = sum(weight * row[f"reward/{name}"] for name, weight in objectives.items())
    assert row["objective/scores"] == pytest.approx(want, abs=1e-5)


def test_a_neural_judge_compares_the_responses_to_one_prompt(reward_model, tmp_path) -> None:
    judge = ("--rl_env_config", json.dumps({"judge": "reward_model", "tie_margin": 0.001}), "--num_generations", "4")
    rule = ("--reward_functions", "gsm8k_reward_fn", "--rm_checkpoint_path", reward_model)
    row = run(tmp_path / "run", "--rl_env_type", "preference_comparison", *judge, *rule)
    assert [row["objective/scores"], row["reward/win_rate"]] == pytest.approx([0.5, 0.5])
    assert {"reward/reward_model", "reward/gsm8k_reward_fn", "reward/win_rate/ties"} <= row.keys()


def words_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {word: i for i, word in enumerate(["<unk>", "</s>", *"0123456789+-*=?", "question", "answer"])}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="<unk>", eos_token="</s>", pad_token="</s>")


def other_reward_model(folder: Path, tokenizer: bool = True) -> str:
    tiny_model("gpt2").save_pretrained(folder / "base")
    AutoModelForSequenceClassification.from_pretrained(folder / "base", num_labels=1).save_pretrained(folder / "rm")
    if tokenizer:
        words_tokenizer().save_pretrained(folder / "rm")
    return str(folder / "rm")


def test_another_tokenizer_is_noted_and_the_text_encoded_anew(tmp_path, capsys) -> None:
    path = other_reward_model(tmp_path)
    row = run(tmp_path / "run", "--rm_checkpoint_path", path)
    said = " ".join(capsys.readouterr().out.split())
    assert f"the reward model {path} has another tokenizer than the actor" in said and "template plain" in said
    assert "reward/reward_model" in row


def test_without_a_tokenizer_its_vocabulary_must_hold_the_actors(tmp_path, capsys) -> None:
    path = other_reward_model(tmp_path, tokenizer=False)
    status = main(["train", *SHORT, "--save_path", str(tmp_path / "run"), "--rm_checkpoint_path", path])
    said = " ".join(capsys.readouterr().err.split())
    assert status == 2 and "holds no tokenizer, and its 40 embeddings are too few" in said


def test_statistics_that_are_not_there(tmp_path, capsys) -> None:
    path = other_reward_model(tmp_path)
    flags = ("--rm_checkpoint_path", path, "--reward_normalisation", "fixed")
    assert main(["train", *SHORT, "--save_path", str(tmp_path / "run"), *flags]) == 2
    assert "holds no reward_statistics.json" in " ".join(capsys.readouterr().err.split())


def test_reencoding_uses_the_question_the_template_and_the_end() -> None:
    from rewards import Sample
    from rlvr.prompting.conversation import Conversation, ConversationTemplate
    from rlvr.scorers.neural import Retokenize

    tokenizer = words_tokenizer()
    conversation = Conversation(ConversationTemplate.load("plain"), tokenizer)
    encode = Retokenize(conversation)
    prompt, response = encode(Sample("1 + 2", None, question="question ?"))
    assert list(prompt) == conversation.encode_prompt("question ?")
    assert tokenizer.decode(response[:3]) == "1 + 2" and response[-1] == 1
    _, cut = encode(Sample("1 + 2", None, question="question ?", finished=False))
    assert list(cut) == list(response[:3])
    prompt, _ = encode(Sample("1", None, prompt="question 1"))
    assert tokenizer.decode(prompt) == "question 1"
