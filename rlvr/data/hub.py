"""Data sets of the Hugging Face hub: `owner/name`, `owner/name@config`, `owner/name:split`, `owner/name@config:split`.

Loading never runs code that comes with a data set (`trust_remote_code` stays off).
"""

import inspect
import re
from dataclasses import dataclass
from typing import Any

from rlvr.data.rows import Row
from rlvr.errors import UserError
from rlvr.suggest import did_you_mean, listed

_NAME = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(@(?P<config>[^:@/]+))?(:(?P<split>.+))?")


@dataclass(frozen=True)
class HubSet:
    """What is known of a set: its configuration, its splits, and where question and answer stand."""

    config: str | None
    splits: tuple[str, ...]
    question: str
    answer: str


KNOWN = {
    "openai/gsm8k": HubSet("main", ("train", "test"), "question", "answer"),
    "ChilleD/SVAMP": HubSet(None, ("train", "test"), "question_concat", "Answer"),
    "DigitalLearningGmbH/MATH-lighteval": HubSet("default", ("train", "test"), "problem", "solution"),
    "HuggingFaceH4/MATH-500": HubSet(None, ("test",), "problem", "answer"),
    "HuggingFaceH4/aime_2024": HubSet(None, ("train",), "problem", "answer"),
    "AI-MO/aimo-validation-aime": HubSet(None, ("train",), "problem", "answer"),
    "AI-MO/aimo-validation-amc": HubSet(None, ("train",), "problem", "answer"),
    "agentica-org/DeepScaleR-Preview-Dataset": HubSet(None, ("train",), "problem", "answer"),
}


@dataclass(frozen=True)
class HubName:
    """A hub source, taken apart."""

    name: str
    config: str | None
    split: str | None


def parse_hub_name(source: str) -> HubName | None:
    """`owner/name@config:split` taken apart; None if `source` is no such thing."""
    match = _NAME.fullmatch(source)
    return HubName(match["name"], match["config"], match["split"]) if match else None


def suggest_hub_name(source: str) -> str:
    """` Did you mean …` for a bare name such as `gsm8k`, or nothing."""
    by_short_name = {name.split("/")[1].lower(): name for name in KNOWN}
    if source.lower() in by_short_name:
        return f" Did you mean {by_short_name[source.lower()]!r}?"
    return did_you_mean(source, KNOWN)


def load_hub_rows(hub: HubName, split: str | None) -> list[Row]:
    """Download (or take from the cache) one split.

    A split in the source's own name is taken as it is. `split` is a wish: where the set has no such split but a single
    other one, that is taken.

    Raises:
        UserError: the set can't be loaded or has no such split.
    """
    import datasets

    known = KNOWN.get(hub.name)
    config = hub.config or (known.config if known else None)
    arguments: dict[str, Any] = {}
    if "trust_remote_code" in inspect.signature(datasets.load_dataset).parameters:  # datasets before 4.0
        arguments["trust_remote_code"] = False
    try:
        chosen = hub.split or _choose_split(hub, config, split or "train")
        rows = datasets.load_dataset(hub.name, config, split=chosen, **arguments)
        if len(rows) == 0:
            raise UserError(f"data set {hub.name}: the split {chosen!r} holds no rows")
        return [Row(dict(row), f"{hub.name}:{chosen}, row {number}") for number, row in enumerate(rows)]
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise UserError(
            f"data set {hub.name!r} (configuration {config or 'default'}) can't be loaded from the hub: "
            f"{type(error).__name__}: {reason} There is no file or folder of that name either. Check the name (syntax: "
            "owner/name@config:split) and the network; or download the set elsewhere and give a JSONL or CSV file."
        ) from error


def _choose_split(hub: HubName, config: str | None, wish: str) -> str:
    import datasets

    known = KNOWN.get(hub.name)
    usual = known is not None and hub.config is None
    splits = list(known.splits) if known and usual else list(datasets.get_dataset_split_names(hub.name, config))
    if wish in splits:
        return wish
    if len(splits) == 1:
        return splits[0]
    raise UserError(
        f"data set {hub.name!r} has no split {wish!r}; its splits: {listed(splits)}. Name one: {hub.name}:{splits[0]}"
    )
