"""Dictionaries of padded tensors, as ColossalChat's collators make them, train as our own rows do."""

import pytest
import torch
from trainer_harness import LetterTokenizer, loader, make_trainer

from rlvr.data.batches import as_examples, as_prompts
from rlvr.data.examples import Example
from rlvr.errors import UserError

TOKENIZER = LetterTokenizer()
BATCH = {
    "input_ids": torch.tensor([[1, 1, 5, 6], [7, 8, 9, 10]]),  # padded on the left
    "attention_mask": torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]),
}


@pytest.mark.parametrize(
    "answers", [["F", "G"], [torch.tensor([[5]]), torch.tensor([[6]])], torch.tensor([[5], [6]]), [[5], [6]]]
)
def test_prompts_with_answers_as_text_or_tokens(answers) -> None:
    found = as_prompts({**BATCH, "gt_answer": answers, "level": torch.tensor([1, 2])}, TOKENIZER)
    assert [prompt.ids for prompt in found] == [(5, 6), (7, 8, 9, 10)]
    assert [prompt.problem.answer for prompt in found] == ["F", "G"]
    assert [prompt.problem.question for prompt in found] == ["FG", "HIJK"]
    assert [int(prompt.problem.columns["level"]) for prompt in found] == [1, 2]
    assert as_prompts(found, TOKENIZER) is found
    assert as_prompts(BATCH, TOKENIZER)[0].problem.answer is None


def test_labels_say_what_is_learned() -> None:
    skip = -100
    labels = torch.tensor([[skip, skip, skip, 6], [skip, 8, skip, 10]])
    found = as_examples({**BATCH, "labels": labels})
    assert found == [Example((5, 6), 1), Example((7, 8, 9, 10), 1, ((2, 3),))]
    assert [example.learned for example in found] == [[1], [1, 3]]
    assert [example.learned for example in as_examples(BATCH)] == [[1], [1, 2, 3]]
    assert as_examples(found) is found


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (torch.zeros(2, 2), "must yield a list of rlvr.data.prompts.Prompt .* not Tensor"),
        ({"prompt": ["a"]}, "not a dictionary of prompt"),
        ({"input_ids": torch.zeros(2)}, r"must be \[B, T\]"),
        ({**BATCH, "gt_answer": ["F"]}, "'gt_answer' must hold a value for each of the 2 rows"),
        ({**BATCH, "gt_answer": [{}, {}]}, "gt_answer must hold texts or token ids, not dict"),
    ],
)
def test_other_batches_are_refused_in_words(batch, said) -> None:
    with pytest.raises(UserError, match=said):
        as_prompts(batch, TOKENIZER)


def test_shifted_labels_are_refused() -> None:
    with pytest.raises(UserError, match="the shift by one is made here"):
        as_examples({**BATCH, "labels": BATCH["input_ids"].roll(-1, 1)})


@pytest.mark.usefixtures("process")
def test_fit_takes_a_torch_dataloader_of_dictionaries() -> None:
    """The same prompts as a list of `Prompt`s and as padded dictionaries end in the same weights."""
    batches = [batch for batch, _ in zip(loader(per_step=16), range(4), strict=False)]

    def padded(batch):
        width = max(len(prompt.ids) for prompt in batch)
        ids = [(1,) * (width - len(prompt.ids)) + prompt.ids for prompt in batch]
        mask = [[0] * (width - len(prompt.ids)) + [1] * len(prompt.ids) for prompt in batch]
        answers = [prompt.problem.answer for prompt in batch]
        return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask), "gt_answer": answers}

    dictionaries = torch.utils.data.DataLoader([padded(batch) for batch in batches], batch_size=None)
    ptx = [
        {**padded(batch), "labels": padded(batch)["input_ids"].masked_fill(padded(batch)["attention_mask"] == 0, -100)}
        for batch in batches
    ]
    for one in ptx:
        del one["gt_answer"]
    ours = [[Example(prompt.ids, 0) for prompt in batch] for batch in batches]
    ends = []
    for prompts, pretrain in ((batches, ours), (dictionaries, ptx)):
        trainer = make_trainer(ptx_coef=0.1)
        trainer.fit(2, 1, 1, prompts, pretrain)
        ends.append(trainer.actor.unwrapped.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
