"""Problems as prompts: too long ones are dropped or cut, and counted."""

from functools import cache

import pytest
from family_tokenizers import family

from rlvr.data.problems import Problem
from rlvr.data.prompts import Prompt, PromptLoader, prepare_prompts
from rlvr.data.sampling import PromptSampler
from rlvr.errors import UserError
from rlvr.prompting.conversation import Conversation, ConversationTemplate

PROBLEMS = [Problem(id=str(size), question="7" * size, answer="7") for size in (3, 20, 8, 40)]


@cache
def conversation() -> Conversation:
    """Its prompts are the question and two tokens around it."""
    return Conversation(ConversationTemplate.load("tiny"), family("tiny"))


def test_prompts_that_fit_are_what_the_template_encodes() -> None:
    prepared = prepare_prompts(PROBLEMS, conversation(), 42)
    assert (prepared.dropped, prepared.truncated) == (0, 0)
    assert prepared.prompts == [Prompt(p, tuple(conversation().encode_prompt(p.question))) for p in PROBLEMS]


def test_too_long_prompts_are_dropped_and_counted() -> None:
    prepared = prepare_prompts(PROBLEMS, conversation(), 21)
    assert [prompt.problem.id for prompt in prepared.prompts] == ["3", "8"]
    assert (prepared.dropped, prepared.truncated) == (2, 0)


def test_a32_too_long_prompts_are_cut_and_counted() -> None:
    prepared = prepare_prompts(PROBLEMS, conversation(), 21, "truncate")
    assert [len(prompt.ids) for prompt in prepared.prompts] == [5, 21, 10, 21]
    assert (prepared.dropped, prepared.truncated) == (0, 2)
    header = conversation().encode("<|assistant|>")
    assert all(prompt.ids[-1:] == tuple(header) for prompt in prepared.prompts)
    assert prepared.prompts[1].problem is PROBLEMS[1]


def test_all_prompts_too_long() -> None:
    with pytest.raises(UserError) as error:
        prepare_prompts(PROBLEMS, conversation(), 4)
    message = str(error.value)
    assert "all 4 prompts are longer than the 4 tokens" in message
    assert "shortest 5, median 22, longest 42 tokens" in message and "template takes 2" in message
    assert "--max_length" in message and "--max_new_tokens" in message and "--overlong_prompts truncate" in message
    with pytest.raises(UserError, match="template takes 2") as error:
        prepare_prompts(PROBLEMS, conversation(), 1, "truncate")
    assert "--overlong_prompts" not in str(error.value)
    with pytest.raises(UserError, match="no problems"):
        prepare_prompts([], conversation(), 10)


def test_loader_gives_ranks_their_share_of_one_batch() -> None:
    prompts = prepare_prompts(PROBLEMS, conversation(), 42).prompts
    whole = PromptLoader(prompts, PromptSampler(4, 4, 3))
    ranks = [PromptLoader(prompts, PromptSampler(4, 4, 3), rank, 2) for rank in range(2)]
    for _ in range(3):
        shares = [next(loader) for loader in ranks]
        assert [prompt for pair in zip(*shares, strict=True) for prompt in pair] == next(whole)
    assert whole.state_dict()["counter"] == 3
