"""The model card: README.md beside a saved model, with what it was trained on, by which rewards, how, and how well."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rlvr.report.page import summary_rows
from rlvr.report.runs import Run, read_runs

USE = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
messages = [{"role": "user", "content": question}]
inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
print(tokenizer.decode(model.generate(**inputs)[0]))
```"""


def write_card(folder: Path, model_folder: Path) -> None:
    """Write the card of the run in `folder` beside the model that it saved."""
    (run,) = read_runs([folder])
    (model_folder / "README.md").write_text(card(run), encoding="utf-8")


def card(run: Run) -> str:
    """Markdown with the hub's header."""
    model, data, reward = (run.settings.get(name, {}) for name in ("model", "data", "reward"))
    base = str(model.get("pretrain", "?"))
    sources = data.get("prompt_dataset") or data.get("dataset") or []
    head = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["rlvr", "reinforcement-learning"],
    }
    if "/" in base and not Path(base).exists():
        head["base_model"] = base
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---",
        f"# {run.name}\n\n`{base}`, trained with rlvr on answers that a rule can check.",
        "## Use\n\nThe tokenizer's chat template makes the prompts of training; the generation settings hold its ends and sampling.\n\n" + USE,
        "## Training\n\n" + _list(
            {
                "Data": ", ".join(map(str, sources)),
                "Rewards": _rewards(reward, model),
                "Algorithm": run.settings.get("algo", {}).get("estimator"),
                "Command": _code(run.environment.get("command")),
                "Versions": ", ".join(f"{n} {run.environment[n]}" for n in ("rlvr", "torch", "transformers") if n in run.environment),
            }
        ),
        "## Results\n\n| | first → last |\n|---|---|\n" + "\n".join(f"| {label} | {cells[0]} |" for label, cells in summary_rows([run])),
        "All settings: `config.yaml` of the run; all curves: `rlvr report`.",
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


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
