"""Folders of runs, as training leaves them, for tests of the report."""

import json
import math
from pathlib import Path

import yaml

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"


def make_run(folder: Path, episodes: int = 12, **metrics) -> Path:
    """A run's folder, as training leaves it. `metrics`: functions of the episode, `/` spelled `__`."""
    folder.mkdir(parents=True)
    rows = []
    for step in range(episodes + 1):
        row = {"step": step, "episode": 8 * step}
        if step:
            share = min(0.9, 0.3 + 0.05 * step)
            row |= {"objective/scores": share, "objective/scores_std": 0.4, "outcome/correct": share, "reward/f": share}
            row |= {"time/rollout": 1.0, "time/update": 2.0, "time/total": 3.0 * step, "grad_norm/actor": 1.0}
            row |= {"outcome/wrong": 1 - share, "outcome/timed_out": 0.0}
            row |= {name.replace("__", "/"): value(step) for name, value in metrics.items()}
        if step in (0, episodes):
            share = 0.25 if step == 0 else 0.75
            row |= {"eval/accuracy": share, "eval/accuracy_low": share - 0.1, "eval/accuracy_high": share + 0.05}
        rows.append({name: None if isinstance(v, float) and math.isnan(v) else v for name, v in row.items()})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sample = {
        "step": 1,
        "prompt": f"2+2? {EVIL}",
        "response": f"<think>{EVIL}</think><answer>4</answer>",
        "gold": "4",
        "score": 1.0,
    }
    (folder / "samples.jsonl").write_text(json.dumps(sample | {"verdict": "correct"}) + "\n")
    (folder / "config.yaml").write_text(yaml.safe_dump({"train": {"lr": 0.1}, "ckpt": {"save_path": str(folder)}}))
    (folder / "environment.json").write_text('{"torch": "2.13.0", "command": "rlvr train"}\n')
    return folder
