"""Functions written for ColossalAI, on the token ids of one sequence.

Version 1 (`coati.utils.reward_score`): `fn(input_ids, attention_mask, **kwargs) -> tensor`, with `gt_answer`,
`response_start`, `response_end` (exclusive), `tokenizer` and `tags` among the kwargs.
Distributed (`coati.distributed.reward`): `fn(input_ids, gt_answer, response_idx, **kwargs) -> tensor`, where
`response_idx` holds the first and the last place of the response, and the result is one number or
(reward, format_acc, ans_acc).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rewards.errors import UserError
from rewards.foreign.signatures import arguments, columns_of, name_of, unpacked
from rewards.outcome import Score
from rewards.tags import NAMES, Tags


def call(
    function: Callable[..., Any],
    options: Mapping[str, Any],
    gold: str | None,
    prompt: str,
    response_ids: Sequence[int],
    finished: bool = True,
    tags: Tags | None = None,
    tokenizer: Any = None,
    **known: Any,
) -> Any:
    """The function's score of one response, in the function's own units (ColossalAI pays 10 for a right answer).

    Raises:
        UserError: no tokenizer.
    """
    import torch

    tokenizer = options.get("tokenizer", tokenizer)
    if tokenizer is None:
        raise UserError(
            f"reward function {name_of(function)!r} (written for ColossalAI) reads token ids and needs the tokenizer: give it to "
            f'RLVRRewardModel, or with options={{"{name_of(function)}": {{"tokenizer": tokenizer}}}}'
        )
    prompt_ids = tokenizer.encode(prompt, add_special_tokens=False)
    ids = torch.tensor([*prompt_ids, *response_ids])
    start, end = len(prompt_ids), len(ids)
    answer: Any = gold
    if options.get("gt_answer_ids") and gold is not None:
        answer = torch.tensor([tokenizer.encode(gold, add_special_tokens=False)])
    conventions = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "gt_answer": answer,
        "response_start": start,
        "response_end": end,
        "response_idx": torch.tensor([start, end - 1]),
        "tokenizer": tokenizer,
        "tags": to_config(tags or Tags.default()),
        # A response of this length counts as cut off; ours says by itself whether it was.
        "max_new_tokens": len(response_ids) + finished,
    } | {name: value for name, value in options.items() if name != "gt_answer_ids"}
    chosen = arguments(function, {**columns_of(known, options), **conventions}, conventions)
    return _score(function, unpacked(function(**chosen)))


def _score(function: Callable[..., Any], result: Any) -> Any:
    if isinstance(result, list) and len(result) == 3:
        return Score(result[0], None, {"format_acc": result[1], "ans_acc": result[2]})
    if isinstance(result, list) and len(result) == 1:
        return result[0]
    if isinstance(result, Mapping):
        raise UserError(f"reward function {name_of(function)!r} returned a dict; run it without eval_mode")
    return result


def to_config(tags: Tags) -> dict[str, dict[str, Any]]:
    """Tags as ColossalAI's templates write them."""
    named = {name: getattr(tags, name) for name in NAMES}
    return {name: {"text": tag.text, "num_occur": tag.num_occur} for name, tag in named.items()}
