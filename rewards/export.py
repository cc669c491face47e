"""`export`: one of our functions with a peer's signature.

The results are objects of module-level classes with a `__name__`: they pickle, since verl, OpenRLHF and TRL send
functions to workers. They call the function in this process: without our workers, nothing ends a call that hangs.

>>> compute_score = export("verl", "gsm8k_reward_fn")
>>> compute_score("openai/gsm8k", "<think>6 * 7</think><answer>42</answer>", "42")["score"]
1.0
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from rewards.call import score
from rewards.errors import UserError
from rewards.foreign.signatures import name_of
from rewards.foreign.trl import GOLD_NAMES
from rewards.outcome import STATUSES, Score
from rewards.registry import RewardFunction, resolve
from rewards.sample import Sample
from rewards.tags import Tags

Target = Literal["trl", "verl", "openrlhf", "colossalai", "colossalai_v1"]
_TRAINERS = ("trainer_state", "log_extra", "log_metric", "environments")


def export(
    target: Target,
    function: str | Callable[..., Any],
    *,
    tags: Tags | Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> "Exported":
    """Our function with the signature of `target`.

    Args:
        target: "trl", "verl", "openrlhf", "colossalai" (distributed) or "colossalai_v1" (ColossalChat).
        function: a name that `rewards.resolve` knows, or the function itself.
        tags: the response tags, as `Tags` or as a template writes them; by default the function's own default, and for
            ColossalAI those that it passes.
        options: keyword arguments of the function.

    Raises:
        UserError: an unknown target, name or option.
    """
    if target not in _TARGETS:
        raise UserError(f"can't export to {target!r}; the targets are: {', '.join(get_args(Target))}")
    if isinstance(tags, Mapping):
        tags = Tags.from_config(tags)
    return _TARGETS[target](function, tags, dict(options or {}))


class Exported:
    """Base of all exports: the function, and how it is pickled for another process."""

    def __init__(self, function: str | Callable[..., Any], tags: Tags | None, options: Mapping[str, Any]) -> None:
        short = function.rsplit(":", 1)[-1] if isinstance(function, str) else name_of(function)
        self.function: RewardFunction = resolve(function, options={short: options})
        self.tags, self.options = tags, options
        self.__name__ = self.function.name
        self.__doc__ = self.function.function.__doc__

    def __reduce__(self) -> Any:
        return type(self), (_reference(self.function), self.tags, self.options)

    def scores(self, samples: Sequence[Sample]) -> list[Score]:
        """The function's checked scores."""
        return score(self.function, samples)

    def sample(self, response: str, gold: Any, tags: Tags | None = None, **more: Any) -> Sample:
        """A sample of what the peer knows of it."""
        return Sample(
            response,
            None if gold is None else gold if isinstance(gold, str) else str(gold),
            tags=tags or self.tags,
            **more,
        )


class TRLReward(Exported):
    """`fn(completions, prompts=..., completion_ids=..., **columns) -> [float | None]`; None = TRL skips the sample.

    The right answer is the data's column `gold`, `answer`, `solution`, `ground_truth`, `target` or `label`, the first of
    these that is there. Components and the rates of the outcomes are logged through TRL's `log_metric`.
    """

    def __call__(
        self,
        completions: Sequence[Any],
        prompts: Sequence[Any] | None = None,
        completion_ids: Sequence[Sequence[int]] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        log_metric = columns.get("log_metric")
        rows = {n: v for n, v in columns.items() if n not in _TRAINERS and _is_column(v, len(completions))}
        golds = self._golds(rows, len(completions))
        texts = [text_of(prompt) for prompt in prompts or [""] * len(completions)]
        questions = rows.get("question", texts)
        samples = [
            self.sample(
                text_of(completion),
                golds[i],
                prompt=texts[i],
                question=questions[i],
                response_ids=tuple(completion_ids[i]) if completion_ids else (),
                columns={name: values[i] for name, values in rows.items()},
            )
            for i, completion in enumerate(completions)
        ]
        scores = self.scores(samples)
        if log_metric is not None:
            for name, value in _means(scores).items():
                log_metric(f"rewards/{self.__name__}/{name}", value)
        return [one.value for one in scores]

    def _golds(self, rows: Mapping[str, Sequence[Any]], count: int) -> Sequence[Any]:
        name = next((name for name in ("gold", "answer", *GOLD_NAMES) if name in rows), None)
        if name is not None:
            return rows[name]
        if {"gold", "golds"} & self.function.parameters.keys():
            raise UserError(
                f"{self.__name__} needs the right answers: the data set has no column 'answer', 'solution' or 'gold'; it has: "
                f"{', '.join(rows) or 'none'}. Rename the column that holds them"
            )
        return [None] * count


class VerlReward(Exported):
    """`compute_score(data_source, solution_str, ground_truth, extra_info=None) -> {"score": float, ...}`.

    verl has no way to skip a sample: one that the function does not apply to scores 0.0 with `skipped` 1.0. The dict
    has the same keys for every sample, as verl needs them.
    """

    def __call__(
        self, data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None, **extras: Any
    ) -> dict[str, float]:
        columns = {**(extra_info or {}), **extras, "data_source": data_source, "ground_truth": ground_truth}
        sample = self.sample(solution_str, ground_truth, question=columns.get("question"), columns=columns)
        (result,) = self.scores([sample])
        components = dict(result.components)
        if result.value is None and not components:
            # Which components there would be is learnt from a right answer that can be read.
            (other,) = self.scores([self.sample(solution_str, "0", question=sample.question, columns=columns)])
            components = dict.fromkeys(other.components, 0.0)
        return {**components, "score": result.value or 0.0, "skipped": float(result.value is None)}


class OpenRLHFReward(Exported):
    """`reward_func(queries, prompts, labels, **kwargs) -> {"rewards", "scores", "extra_logs"}`, of torch tensors [B].

    OpenRLHF can't skip a sample: one that the function does not apply to gets 0. `scores` are the rewards within
    [0, 1], which OpenRLHF's dynamic filtering compares.
    """

    def __call__(
        self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **kwargs: Any
    ) -> dict[str, Any]:
        import torch

        samples = [
            self.sample(query.removeprefix(prompt), label, prompt=prompt)
            for query, prompt, label in zip(queries, prompts, labels, strict=True)
        ]
        scores = self.scores(samples)
        rewards = torch.tensor([one.value or 0.0 for one in scores])
        names = {name for one in scores for name in one.components}
        logs = {name: torch.tensor([one.components.get(name, 0.0) for one in scores]) for name in sorted(names)}
        logs["skipped"] = torch.tensor([float(one.value is None) for one in scores])
        return {"rewards": rewards, "scores": rewards.clamp(0.0, 1.0), "extra_logs": logs}


class ColossalReward(Exported):
    """ColossalAI distributed: `fn(input_ids, gt_answer, response_idx, **kwargs) -> tensor([reward, format, correct])`.

    The reward is the function's own: a right answer is 1, not 10. With `eval_mode` it returns ColossalAI's dict.
    """

    def __call__(self, input_ids: Any, gt_answer: Any = None, response_idx: Any = None, **kwargs: Any) -> Any:
        import torch

        tokenizer = kwargs["tokenizer"]
        start, end = int(response_idx[0]), int(response_idx[1]) + 1
        gold = gt_answer
        if hasattr(gold, "tolist"):  # until 2025 the right answer came as token ids
            gold = tokenizer.decode(gold.reshape(-1), skip_special_tokens=True)
        limit = kwargs.get("max_new_tokens")
        sample = self._read(input_ids, start, end, gold, limit is None or end - start < limit, kwargs)
        (result,) = self.scores([sample])
        formed = float((sample.tags or Tags.default()).is_well_formed(sample.response))
        correct = float(result.outcome.correct) if result.outcome else float(result.components.get("correct", 0.0))
        if not kwargs.get("eval_mode"):
            return torch.tensor([result.value or 0.0, formed, correct]).to(input_ids.device)
        return {
            "prompt": sample.prompt,
            "prediction": sample.response,
            "gold": gold,
            "parsed": result.outcome.answer if result.outcome else sample.answer,
            "format_valid": formed,
            "ans_valid": correct,
            "response_length": end - start,
            "reward": result.value or 0.0,
        }

    def _read(self, ids: Any, start: int, end: int, gold: Any, finished: bool, kwargs: Mapping[str, Any]) -> Sample:
        tokenizer, tags = kwargs["tokenizer"], kwargs.get("tags")
        return self.sample(
            tokenizer.decode(ids[start:end], skip_special_tokens=True),
            gold,
            self.tags or (Tags.from_config(tags) if tags else None),
            prompt=tokenizer.decode(ids[:start], skip_special_tokens=True),
            response_ids=tuple(ids[start:end].tolist()),
            finished=finished,
        )


class ColossalV1Reward(ColossalReward):
    """ColossalChat: `fn(input_ids, attention_mask, **kwargs) -> tensor`, the reward without dimensions.

    The kwargs: `gt_answer`, `response_start`, `response_end` (exclusive), `tokenizer`, `tags`.
    """

    def __call__(self, input_ids: Any, attention_mask: Any = None, **kwargs: Any) -> Any:  # type: ignore[override]
        import torch

        start, end = int(kwargs["response_start"]), int(kwargs["response_end"])
        (result,) = self.scores([self._read(input_ids, start, end, kwargs["gt_answer"], True, kwargs)])
        return torch.tensor(result.value or 0.0).to(input_ids.device)


_TARGETS: Mapping[str, type[Exported]] = {
    "trl": TRLReward,
    "verl": VerlReward,
    "openrlhf": OpenRLHFReward,
    "colossalai": ColossalReward,
    "colossalai_v1": ColossalV1Reward,
}


def text_of(messages: Any) -> str:
    """The text of a completion or prompt: itself, or the content of the last message."""
    if isinstance(messages, str):
        return messages
    content = messages[-1]["content"] if messages else ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [])


def _is_column(values: Any, count: int) -> bool:
    return isinstance(values, list | tuple) and len(values) == count


def _means(scores: Sequence[Score]) -> dict[str, float]:
    """The mean of every component and the rate of every outcome."""
    found: dict[str, list[float]] = {}
    for one in scores:
        for name, value in one.components.items():
            found.setdefault(name, []).append(value)
        if one.outcome is not None:
            for status in STATUSES:
                found.setdefault(f"outcome/{status}", []).append(float(one.outcome.status == status))
    return {name: sum(values) / len(values) for name, values in found.items()}


def _reference(function: RewardFunction) -> str | Callable[..., Any]:
    """A reference by which another process finds the function: a plugin's file, else the function, pickled by its name."""
    module = sys.modules.get(function.function.__module__)
    if module is not None and module.__name__.startswith("rlvr_plugin_"):
        return f"{module.__file__}:{function.function.__name__}"
    return function.function
