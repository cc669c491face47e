"""Problems as prompts: token ids that leave room for a response (`prepare_prompts`), and the trainer's `PromptLoader`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

from rlvr.data.problems import Problem
from rlvr.data.sampling import Loader
from rlvr.errors import UserError

if TYPE_CHECKING:
    from rlvr.prompting.conversation import Conversation


@dataclass(frozen=True)
class Prompt:
    """A problem with the token ids that the model is to continue."""

    problem: Problem
    ids: tuple[int, ...]


@dataclass(frozen=True)
class PreparedPrompts:
    """Prompts that fit.

    Attributes:
        dropped: problems left out because they are too long.
        truncated: prompts whose question was cut.
    """

    prompts: list[Prompt]
    dropped: int
    truncated: int


class PromptLoader(Loader[Prompt]):
    """The trainer's `prompt_dataloader`: yields this process's share of each batch as a list of `Prompt`s, for ever."""

    @cached_property
    def _places(self) -> dict[str, int]:
        """The index of each problem, by its id."""
        return {prompt.problem.id: index for index, prompt in enumerate(self.items)}

    def observe(self, solved: Sequence[Mapping[str, Sequence[int]]]) -> None:
        """Tell the sampler what became of a collect step.

        Args:
            solved: of each process, `Collected.solved`.
        """
        counts: dict[int, tuple[int, int]] = {}
        for of_process in solved:
            for id_, (tries, right) in of_process.items():
                place = self._places[id_]
                before = counts.get(place, (0, 0))
                counts[place] = before[0] + tries, before[1] + right
        self.sampler.observe(counts)


def fingerprint(prompts: Iterable[Prompt]) -> str:
    """A hash that changes when a problem, its right answer or its prompt does: a resumed run must see the same data."""
    digest = blake2b(digest_size=8)
    for prompt in prompts:
        digest.update(f"{prompt.problem.id}\0{prompt.problem.answer}\0{prompt.ids}\n".encode())
    return digest.hexdigest()


def prepare_prompts(
    problems: Sequence[Problem],
    conversation: "Conversation",
    max_prompt_tokens: int,
    overlong: Literal["drop", "truncate"] = "drop",
) -> PreparedPrompts:
    """Encode the problems and see to it that no prompt is longer than `max_prompt_tokens`.

    Args:
        overlong: `drop` leaves longer ones out; `truncate` cuts the question on its left (the system message and the
            generation header stay, pitfall A32), and drops those that are too long even without a question.

    Raises:
        UserError: no prompt is left.
    """
    prompts: list[Prompt] = []
    lengths: list[int] = []
    truncated = 0
    for problem in problems:
        ids: list[int] | None = conversation.encode_prompt(problem.question)
        assert ids is not None
        lengths.append(len(ids))
        if len(ids) > max_prompt_tokens:
            ids = conversation.truncate_prompt(problem.question, max_prompt_tokens) if overlong == "truncate" else None
            truncated += ids is not None
        if ids is not None:
            prompts.append(Prompt(problem, tuple(ids)))
    if not prompts:
        raise _nothing_left(lengths, conversation, max_prompt_tokens, overlong)
    return PreparedPrompts(prompts, dropped=len(problems) - len(prompts), truncated=truncated)


def _nothing_left(lengths: list[int], conversation: "Conversation", limit: int, overlong: str) -> UserError:
    if not lengths:
        return UserError("there are no problems to make prompts of")
    ordered = sorted(lengths)
    header = len(conversation.encode_prompt(""))
    cut = "" if overlong == "truncate" or header > limit else ", or cut questions with --overlong_prompts truncate"
    return UserError(
        f"all {len(lengths)} prompts are longer than the {limit} tokens that --max_length less --max_new_tokens leaves: "
        f"shortest {ordered[0]}, median {ordered[len(ordered) // 2]}, longest {ordered[-1]} tokens, of which the template "
        f"takes {header}. Raise --max_length, lower --max_new_tokens{cut}."
    )
