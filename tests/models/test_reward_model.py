"""The reward model's scores against transformers' own, and what may be loaded as one."""

import copy
import json

import pytest
import torch
from tiny_models import FAMILIES, VOCAB, tiny_model
from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification

from rlvr.errors import UserError
from rlvr.models.batch import collate
from rlvr.models.loading import new_sequence_classifier
from rlvr.models.reward_model import RewardModel, RewardStatistics


@pytest.fixture
def base(tmp_path, request):
    """A folder with a causal LM; the token 1 ends and pads."""
    folder = tmp_path / "base"
    tiny_model(getattr(request, "param", "llama")).save_pretrained(folder)
    return str(folder)


def make(base: str, **arguments) -> RewardModel:
    model = RewardModel.from_base(base, **arguments).eval()
    with torch.no_grad():
        model.head.weight.mul_(100)
    return model


def rows(seed: int = 0) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Prompts and responses of different lengths; responses end in 1, which occurs inside too."""
    g = torch.Generator().manual_seed(seed)
    lengths = [(1, 5), (4, 1), (6, 9), (2, 3)]
    prompts = [torch.randint(2, VOCAB, (p,), generator=g) for p, _ in lengths]
    responses = [torch.randint(2, VOCAB, (r,), generator=g) for _, r in lengths]
    responses[2][4] = 1
    for response in responses:
        response[-1] = 1
    return prompts, responses


def own_score(model: RewardModel, ids: torch.Tensor) -> float:
    """What transformers says of one unpadded row: without a pad token it reads the last position."""
    classifier = copy.deepcopy(model.model)
    classifier.config.pad_token_id = None
    return classifier(ids[None]).logits.item()


@torch.no_grad()
@pytest.mark.parametrize("base", FAMILIES, indirect=True)
def test_scores_equal_transformers_own_whatever_the_padding_and_its_token(base) -> None:
    model = make(base)
    prompts, responses = rows()
    want = [own_score(model, torch.cat(pair)) for pair in zip(prompts, responses, strict=True)]
    assert len({round(w, 3) for w in want}) == len(want)
    for side in ("left", "right"):
        for pad_id in (1, 3):  # 1 is EOS
            for pad_to in (None, 30):
                got = model(collate(prompts, responses, pad_id=pad_id, padding_side=side, pad_to=pad_to))
                assert got.dtype == torch.float32
                assert got.tolist() == pytest.approx(want, abs=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("base", FAMILIES, indirect=True)
def test_others_load_what_was_saved_and_score_the_same(base, tmp_path) -> None:
    model = make(base, pad_id=0)
    model.save_pretrained(tmp_path / "rm")
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "rm").eval()
    assert loaded.config.num_labels == 1 and loaded.config.pad_token_id == 0
    batch = collate(*rows(1), pad_id=0)
    own = loaded(batch.input_ids, attention_mask=batch.attention_mask).logits[:, 0]
    torch.testing.assert_close(own, model(batch), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(RewardModel.from_pretrained(tmp_path / "rm").eval()(batch), own, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_one_that_others_made_loads(base, tmp_path) -> None:
    theirs = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    ours = RewardModel.from_pretrained(tmp_path / "theirs").eval()
    prompts, responses = rows(2)
    want = [own_score(ours, torch.cat(pair)) for pair in zip(prompts, responses, strict=True)]
    assert ours(collate(prompts, responses)).tolist() == pytest.approx(want, abs=1e-5)
    assert torch.equal(theirs.score.weight, ours.head.weight)


def test_a_pad_token_that_ends_is_not_written(base) -> None:
    """transformers would then score the token before the end; so it refuses batches instead."""
    model = RewardModel.from_base(base)
    assert model.model.config.pad_token_id is None
    with pytest.raises(ValueError, match="padding token"):
        model.model(torch.ones(2, 3, dtype=torch.long))


def test_the_head_comes_from_the_seed_and_the_rest_from_the_base(base) -> None:
    state = torch.get_rng_state()
    models = [RewardModel.from_base(base, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(models[0].head.weight, models[1].head.weight)
    assert not torch.equal(models[0].head.weight, models[2].head.weight)
    for own, given in zip(models[0].decoder.parameters(), tiny_model().base_model.parameters(), strict=True):
        assert torch.equal(own, given)


def test_gradients_reach_the_whole_decoder(base) -> None:
    model = make(base)
    model(collate(*rows(3))).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_statistics_are_saved_beside_the_weights(base, tmp_path) -> None:
    model = RewardModel.from_base(base)
    model.save_pretrained(tmp_path / "without")
    assert RewardModel.from_pretrained(tmp_path / "without").statistics is None
    model.statistics = RewardStatistics(mean=0.5, std=2.0)
    model.save_pretrained(tmp_path / "with")
    assert RewardModel.from_pretrained(tmp_path / "with").statistics == RewardStatistics(0.5, 2.0)
    (tmp_path / "with" / "reward_statistics.json").write_text(json.dumps({"mean": "much"}))
    with pytest.raises(UserError, match="reward_statistics.json"):
        RewardModel.from_pretrained(tmp_path / "with")


def test_more_than_one_label_is_refused(base, tmp_path) -> None:
    AutoModelForSequenceClassification.from_pretrained(base, num_labels=3).save_pretrained(tmp_path / "three")
    with pytest.raises(UserError, match="one label.*has 3"):
        RewardModel.from_pretrained(tmp_path / "three")


def test_a_language_model_is_no_trained_reward_model(base) -> None:
    with pytest.raises(UserError, match=r"no trained sequence classifier.*score\.weight"):
        RewardModel.from_pretrained(base)


def test_an_encoder_is_refused(tmp_path) -> None:
    small = BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_labels=1)
    BertForSequenceClassification(small).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="linear `score`"):
        RewardModel.from_pretrained(tmp_path)


def test_a_folder_that_is_not_there_and_a_family_without_classifiers(tmp_path) -> None:
    with pytest.raises(UserError, match="can't load the configuration '.*nowhere'"):
        RewardModel.from_pretrained(tmp_path / "nowhere")
    config = tiny_model().config
    config.__class__ = type("Nameless", (type(config),), {"model_type": "nameless"})
    with pytest.raises(UserError, match="no sequence classifier of the family 'nameless'"):
        new_sequence_classifier(config)


def test_the_built_in_model_can_be_a_base(tiny_cache) -> None:
    model = RewardModel.from_base("tiny", seed=1)
    assert model(collate([torch.tensor([5, 6])], [torch.tensor([7])])).shape == (1,)
