"""Neural reward models as scorers: alone, with rules, normalised; and inside training."""

import json
import random
import statistics
from pathlib import Path

import pytest
import torch
from tiny_models import VOCAB, tiny_model
from trainer_harness import LetterTokenizer, loader, make_trainer, prompts, share_of_f, weights
from transformers import AutoModelForSequenceClassification

from rewards import Sample
from rlvr.checkpoint.storage import list_checkpoints
from rlvr.errors import UserError
from rlvr.models.batch import collate
from rlvr.models.critic import Critic
from rlvr.models.reward_model import RewardModel, RewardStatistics
from rlvr.scorers.neural import FixedNormaliser, NeuralRewardModel, RunningNormaliser, WeightedRewards
from rlvr.scorers.rules import RLVRRewardModel, metrics_of
from rlvr.tracking.meter import Meter


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A reward model with statistics, saved."""
    base, target = tmp_path_factory.mktemp("base"), tmp_path_factory.mktemp("rm")
    tiny_model(seed=3).save_pretrained(base)
    model = RewardModel.from_base(str(base))
    with torch.no_grad():
        model.head.weight.mul_(30)
    model.statistics = RewardStatistics(mean=0.25, std=2.0)
    model.save_pretrained(target)
    return target


def neural(folder: Path, **arguments) -> NeuralRewardModel:
    return NeuralRewardModel(RewardModel.from_pretrained(folder), LetterTokenizer(), **arguments)


def samples(count: int = 7, seed: int = 0) -> list[Sample]:
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        prompt = [rng.randrange(2, VOCAB) for _ in range(rng.randrange(1, 6))]
        response = [rng.randrange(2, VOCAB) for _ in range(rng.randrange(0, 9))]
        text = LetterTokenizer().decode(response)
        made.append(Sample(text, None, prompt=str(prompt), prompt_ids=tuple(prompt), response_ids=tuple(response)))
    return made


@torch.no_grad()
def one_by_one(folder: Path, given: list[Sample]) -> list[float]:
    model = RewardModel.from_pretrained(folder).eval()
    rows = [collate([torch.tensor(s.prompt_ids)], [torch.tensor(s.response_ids, dtype=torch.long)]) for s in given]
    return [model(row).item() for row in rows]


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_each_response_gets_its_own_score_in_order(folder, batch_size) -> None:
    given = samples()
    scorer = neural(folder, batch_size=batch_size)
    scoring = scorer.begin()
    scoring.add(given[:2])
    scoring.add(given[2:])
    scoring.complete()
    want = one_by_one(folder, given)
    results = scoring.result()
    assert [r.total for r in results] == pytest.approx(want, abs=1e-5)
    assert scorer.names == ["reward_model"]
    assert metrics_of(results[0])["reward/reward_model"] == pytest.approx(want[0], abs=1e-5)
    scorer.close()


def test_called_on_padded_tokens_as_the_references_are(folder) -> None:
    ids = torch.tensor([[5, 6, 7, 8, 1, 1], [1, 5, 9, 9, 7, 1]])
    mask = torch.tensor([[1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1]])
    scores = neural(folder)(ids, mask, [2, 3], [3, 5], [None, None])
    made = [
        Sample("", None, prompt_ids=(5, 6), response_ids=(7, 8)),
        Sample("", None, prompt_ids=(5, 9), response_ids=(9, 7, 1)),
    ]
    assert scores.tolist() == pytest.approx(one_by_one(folder, made), abs=1e-5)


def test_rules_and_a_model_are_added_with_their_weights(folder) -> None:
    given = samples()
    rules = RLVRRewardModel([share_of_f, len_of], LetterTokenizer(), weights=[2.0, 0.0])
    both = WeightedRewards(rules, neural(folder, weight=0.5))
    results = both.score(given)
    for result, score, sample in zip(results, one_by_one(folder, given), given, strict=True):
        assert result.total == pytest.approx(2 * share_of_f(sample.response) + 0.5 * score, abs=1e-5)
        assert result.scores["len_of"].value == len(sample.response)  # a metric that pays nothing
    assert both.names == ["share_of_f", "len_of", "reward_model"]
    metrics = metrics_of(results[0])
    assert {"reward/share_of_f", "reward/len_of", "reward/reward_model"} <= metrics.keys()


def len_of(response: str) -> float:
    return float(len(response))


def test_the_aggregation_is_over_functions_and_model_together(folder) -> None:
    """Normalised in one group each, then weighed: the sum over the group is 0."""
    given = [
        Sample(s.response, None, prompt="p", prompt_ids=s.prompt_ids, response_ids=s.response_ids) for s in samples()
    ]
    rules = RLVRRewardModel([len_of], LetterTokenizer())
    both = WeightedRewards(rules, neural(folder), "normalise_then_sum")
    totals = [r.total for r in both.score(given)]
    lengths, scores = [len(s.response) for s in given], one_by_one(folder, given)
    want = [
        (n - statistics.mean(lengths)) / (statistics.stdev(lengths) + 1e-4)
        + (x - statistics.mean(scores)) / (statistics.stdev(scores) + 1e-4)
        for n, x in zip(lengths, scores, strict=True)
    ]
    assert totals == pytest.approx(want, abs=1e-4)


def test_a_name_that_a_function_has_already_is_refused(folder) -> None:
    def reward_model(response: str) -> float:
        return 0.0

    with pytest.raises(UserError, match="twice"):
        WeightedRewards(RLVRRewardModel([reward_model]), neural(folder))


def test_running_normalisation_is_over_everything_so_far(folder) -> None:
    scorer = neural(folder, normaliser=RunningNormaliser())
    seen: list[float] = []
    for seed in range(4):
        given = samples(5, seed)
        seen += one_by_one(folder, given)
        want = [(x - statistics.mean(seen)) / statistics.stdev(seen) for x in seen[-5:]]
        results = scorer.score(given)
        assert [r.total for r in results] == pytest.approx(want, abs=1e-4)
        assert [r.scores["reward_model"].components["raw"] for r in results] == pytest.approx(seen[-5:], abs=1e-5)
    assert metrics_of(results[0]).keys() >= {"reward/reward_model", "reward/reward_model/raw"}


def test_running_normalisation_of_few_or_equal_scores() -> None:
    normaliser = RunningNormaliser()
    normaliser.observe([])
    assert normaliser(3.0) == 3.0
    normaliser.observe([5.0])
    assert normaliser(5.0) == 0.0
    normaliser.observe([5.0, 5.0])
    assert normaliser(5.0) == 0.0 and normaliser.std == 0.0


def test_fixed_normalisation_takes_the_saved_statistics(folder) -> None:
    statistics_ = RewardModel.from_pretrained(folder).statistics
    given = samples()
    results = neural(folder, normaliser=FixedNormaliser(statistics_)).score(given)
    want = [(score - 0.25) / 2.0 for score in one_by_one(folder, given)]
    assert [r.total for r in results] == pytest.approx(want, abs=1e-5)


def test_a_score_that_is_no_number_ends_with_a_message(folder) -> None:
    scorer = neural(folder)
    scorer.frozen.model.head.weight.data.fill_(float("nan"))
    with pytest.raises(UserError, match="reward model gave nan"):
        scorer.score(samples(2))


def test_rows_longer_than_the_models_positions_are_cut_on_the_left(tmp_path) -> None:
    tiny_model("gpt2").save_pretrained(tmp_path / "base")  # 64 positions
    RewardModel.from_base(str(tmp_path / "base")).save_pretrained(tmp_path / "rm")
    long = Sample("", None, prompt_ids=tuple([5] * 60), response_ids=tuple([7] * 10))
    cut = Sample("", None, prompt_ids=tuple([5] * 54), response_ids=tuple([7] * 10))
    longer = Sample("", None, prompt_ids=(5,) * 9, response_ids=(3,) * 20 + (7,) * 63)
    shortest = Sample("", None, prompt_ids=(5,), response_ids=(7,) * 63)
    totals = [r.total for r in neural(tmp_path / "rm").score([long, cut, longer, shortest])]
    assert totals[0] == totals[1] and totals[2] == totals[3]


def test_the_weights_stay_as_they_are_in_training(folder, process) -> None:
    scorer = neural(folder)
    before = [p.clone() for p in scorer.frozen.model.parameters()]
    make_trainer(reward_model=scorer).fit(1, 1, 2, loader())
    after = list(scorer.frozen.model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert not any(p.requires_grad for p in after)


def test_ppo_raises_the_score_of_the_reward_model_and_a_rule_is_logged_beside(folder, process, tmp_path) -> None:
    rules = RLVRRewardModel([share_of_f], LetterTokenizer(), weights=[0.0])
    scorer = WeightedRewards(rules, neural(folder))
    make_trainer(tmp_path, steps=80, reward_model=scorer).fit(20, 1, 2, loader())
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    early, late = (statistics.mean(r["reward/reward_model"] for r in part) for part in (rows[:5], rows[-5:]))
    assert late > early + 0.3
    assert rows[0]["objective/scores"] == pytest.approx(rows[0]["reward/reward_model"])
    assert "reward/share_of_f" in rows[0]


def test_the_trainer_takes_a_bare_model_too(folder, process) -> None:
    results = []
    bare = AutoModelForSequenceClassification.from_pretrained(folder)
    for given in (neural(folder), RewardModel.from_pretrained(folder), bare):
        trainer = make_trainer(reward_model=given)
        trainer.fit(1, 1, 1, loader())
        results.append(weights(trainer))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
    with pytest.raises(UserError, match="one label"):
        make_trainer(
            reward_model=AutoModelForSequenceClassification.from_pretrained(
                folder, num_labels=2, ignore_mismatched_sizes=True
            )
        )


def test_a30_a_resumed_run_with_running_normalisation_is_the_same_bit_for_bit(folder, process, tmp_path) -> None:
    def trainer(place: Path | None = None):
        reward_model = neural(folder, normaliser=RunningNormaliser())
        return make_trainer(place, reward_model=reward_model, save_interval=1, keep_checkpoints=9)

    whole = trainer(tmp_path)
    whole.fit(3, 2, 1, loader())
    first = list_checkpoints(tmp_path)[0]
    assert first.name == "step-000001"
    again, forgetful = trainer(), trainer()
    again.load_checkpoint(first)
    again.fit(3, 2, 1, loader())
    assert torch.equal(weights(again), weights(whole))
    assert again.maker.reward_model.state_dict() == whole.maker.reward_model.state_dict()
    forgetful.load_checkpoint(first)
    forgetful.maker.reward_model.normaliser = RunningNormaliser()
    forgetful.fit(3, 2, 1, loader())
    assert not torch.equal(weights(forgetful), weights(whole))


def test_the_trainer_makes_the_same_experience_from_a_rule_and_a_model_that_agree(folder, process) -> None:
    """A rule that says what the model says trains to the same weights."""
    table: dict[tuple[int, ...], float] = {}

    def as_the_model(response_ids, prompt: str) -> float:
        return table[prompt, tuple(response_ids)]

    class Remembering(NeuralRewardModel):
        def raw_scores(self, given):
            scores = super().raw_scores(given)
            table.update({(s.prompt, tuple(s.response_ids)): x for s, x in zip(given, scores, strict=True)})
            return scores

    results = []
    for scorer in (Remembering(RewardModel.from_pretrained(folder)), RLVRRewardModel([as_the_model])):
        trainer = make_trainer(reward_model=scorer)
        trainer.fit(1, 1, 1, loader())
        results.append(weights(trainer))
    assert torch.equal(*results)


@torch.no_grad()
def test_a_critic_starts_from_a_reward_model(folder) -> None:
    critic = Critic.from_pretrained(folder).eval()
    model = RewardModel.from_pretrained(folder).eval()
    prompt, response = torch.tensor([5, 6, 7]), torch.tensor([8, 9, 10, 1])
    out = critic(collate([prompt], [response]))
    states = torch.cat([prompt, response])
    for t in range(len(response)):
        prefix = states[: len(prompt) + t]
        assert out.values[0, t].item() == pytest.approx(model(collate([prefix], [prefix[:0]])).item(), abs=1e-5)
    assert out.last_values.item() == pytest.approx(model(collate([prompt], [response])).item(), abs=1e-5)


def test_a_critic_starts_from_nothing_else(tmp_path) -> None:
    tiny_model().save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"no critic: value_head\.safetensors.*no reward model"):
        Critic.from_pretrained(tmp_path)


@torch.no_grad()
def test_an_adapter_is_merged_into_its_base(tmp_path) -> None:
    peft = pytest.importorskip("peft")
    tiny_model().save_pretrained(tmp_path / "base")
    base = RewardModel.from_base(str(tmp_path / "base"))
    config = peft.LoraConfig(task_type="SEQ_CLS", target_modules=["q_proj"], modules_to_save=["score"], r=2)
    theirs = peft.get_peft_model(base.model, config).eval()
    for name, parameter in theirs.named_parameters():
        if "lora" in name or "modules_to_save" in name:
            parameter.normal_(generator=torch.Generator().manual_seed(len(name)))
    theirs.save_pretrained(tmp_path / "adapter")
    ours = RewardModel.from_pretrained(tmp_path / "adapter", base=str(tmp_path / "base")).eval()
    ids = torch.tensor([5, 6, 7])
    want = theirs(ids[None]).logits.item()
    assert abs(want) > 0.1
    assert ours(collate([ids], [ids[:0]])).item() == pytest.approx(want, abs=1e-4)


def test_an_adapter_without_a_head_or_without_a_base(tmp_path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"modules_to_save": None}))
    with pytest.raises(UserError, match="no trained score head"):
        RewardModel.from_pretrained(tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"modules_to_save": ["score"]}))
    with pytest.raises(UserError, match="--rm_pretrain"):
        RewardModel.from_pretrained(tmp_path)
    (tmp_path / "adapter_config.json").write_text("[]")
    with pytest.raises(UserError, match="adapter_config.json"):
        RewardModel.from_pretrained(tmp_path)


def test_scores_are_counted_in_the_metrics(folder, process) -> None:
    trainer = make_trainer(reward_model=neural(folder))
    meter = Meter()
    trainer.maker.make_experience(prompts(6), meter, 0)
    means = meter.means()
    assert means["objective/scores"] == pytest.approx(means["reward/reward_model"])
