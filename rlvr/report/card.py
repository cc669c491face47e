"""The model card: README.md beside a saved model, which says on what data, by which rewards, how, and how well it was trained.

Models and data sets that lie on this machine are named without their path (`_public`): a card is made to be published.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from rlvr.report.runs import MAIN_FIGURES, Run, read_runs

USE = {
    "modeling": """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
messages = [{"role": "user", "content": question}]
inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
print(tokenizer.decode(model.generate(**inputs)[0]))
```

The tokenizer's chat template makes the prompts of training; the generation settings hold its ends and sampling.""",
    "adapter": """```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder)
```""",
    "reward_model": """```python
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSequenceClassification.from_pretrained(folder)
score = model(**tokenizer(prompt_and_response, add_special_tokens=False, return_tensors="pt")).logits[0, 0]
```""",
}
"""How to use a model, by its kind."""
BARS = "▁▂▃▄▅▆▇█"
POINTS = 24
"""Bars of a curve."""


def write_card(folder: Path, model_folder: Path) -> None:
    """Write the card of the run in `folder` beside the model that it saved.

    Raises:
        UserError: the folder holds no run.
    """
    (run,) = read_runs([folder])
    kind = "reward_model" if model_folder.parent.name == "reward_model" else model_folder.name
    (model_folder / "README.md").write_text(card(run, kind), encoding="utf-8")


def card(run: Run, kind: str = "modeling") -> str:
    """Markdown with the hub's header.

    Args:
        run: the one that trained the model.
        kind: the model's, a key of `USE`.
    """
    model = run.settings.get("model", {})
    base = str(model.get("pretrain", "?"))
    parts = [
        f"---\n{yaml.safe_dump(_head(base, kind), sort_keys=False)}---",
        f"# {run.name}\n\n`{_public(base)}`, {_how(run, kind)}.",
        f"## Use\n\n{USE[kind]}",
        "## Training\n\n" + _list(_training(run)),
        "## Results\n\n| | first → last | curve |\n|---|---|---|\n" + "\n".join(_results(run)),
        "All settings: `config.yaml` of the run; all curves: `rlvr report`.",
    ]
    return "\n\n".join(parts) + "\n"


def curve(values: Sequence[float], points: int = POINTS) -> str:
    """Values as a line of bars, the lowest for the least value; neighbours are averaged where there are too many.

    >>> curve([0, 1, 2, 3, 4, 5, 6, 7])
    '▁▂▃▄▅▆▇█'
    """
    size = min(points, len(values))
    ends = [round(i * len(values) / size) for i in range(size + 1)] if size else []
    means = [fmean(values[start:end]) for start, end in zip(ends, ends[1:], strict=False)]
    low, spread = min(means, default=0.0), max(means, default=0.0) - min(means, default=0.0)
    places = [(mean - low) / spread if spread else 0.5 for mean in means]
    return "".join(BARS[min(len(BARS) - 1, int(place * len(BARS)))] for place in places)


def _head(base: str, kind: str) -> dict[str, Any]:
    head: dict[str, Any] = {
        "library_name": "peft" if kind == "adapter" else "transformers",
        "pipeline_tag": "text-classification" if kind == "reward_model" else "text-generation",
        "tags": ["rlvr", "reward-model" if kind == "reward_model" else "reinforcement-learning"],
    }
    if "/" in base and not Path(base).exists():
        head["base_model"] = base.partition("#")[0]  # the hub links it
    return head


def _public(name: str) -> str:
    """A model's or data set's name; of a path on this machine the last part."""
    return Path(name).name if Path(name).exists() else name


def _how(run: Run, kind: str) -> str:
    if kind == "reward_model":
        return "trained with rlvr as a reward model on pairs of responses"
    if "reward" in run.settings:
        return "trained with rlvr by reinforcement learning"
    return "fine-tuned with rlvr"


def _training(run: Run) -> dict[str, Any]:
    model, data, reward = (run.settings.get(name, {}) for name in ("model", "data", "reward"))
    sources = data.get("prompt_dataset") or data.get("dataset") or data.get("preference_dataset") or []
    sources = [data["prompt_csv_url"]] if data.get("prompt_csv_url") else sources
    versions = [f"{n} {run.environment[n]}" for n in ("rlvr", "torch", "transformers") if n in run.environment]
    return {
        "Data": ", ".join(_public(str(source)) for source in sources),
        "Rewards": _rewards(reward, model),
        "Algorithm": run.settings.get("algo", {}).get("estimator"),
        "Command": _code(run.environment.get("command")),
        "Versions": ", ".join(versions),
    }


def _results(run: Run) -> list[str]:
    rows = []
    for metric, label, form in MAIN_FIGURES:
        values = run.series(metric)[1]
        if not values:
            continue
        ends = " → ".join(dict.fromkeys(form.format(value) for value in (values[0], values[-1])))
        low, high = (run.last(f"{metric}_{end}") for end in ("low", "high"))
        if low is not None and high is not None:
            ends += f" (95 %: {form.format(low)} to {form.format(high)})"
        rows.append(f"| {label} | {ends} | {curve(values) if len(values) > 1 else ''} |")
    return rows


def _rewards(reward: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    names, weights = reward.get("reward_functions") or [], reward.get("reward_weights") or []
    told = [f"{name} ({weight:g})" for name, weight in zip(names, weights, strict=True)] if weights else [*names]
    if path := model.get("rm_checkpoint_path"):
        told.append(f"reward model {Path(str(path)).name} ({reward.get('rm_weight', 1.0):g})")
    return ", ".join(told)


def _list(values: Mapping[str, Any]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in values.items() if value)


def _code(text: Any) -> str:
    return f"`{text}`" if text else ""
