"""A real model and real text as the work of a comparison: written to a folder once, which both sides read."""

import json
from pathlib import Path

PROBLEMS = Path(__file__).parents[3] / "shared" / "data" / "problems"
FILES = {"ppo": "svamp.jsonl", "grpo": "svamp.jsonl", "sft": "gsm8k_train.jsonl"}
SFT_ROWS = 2400
MOST_TOKENS = 384
"""Of a row of supervised fine-tuning; longer ones are left out."""


def write_work(name: str, recipe: str, folder: Path, problems: Path | None = None) -> None:
    """Write model and tokenizer as `save_pretrained` does, and `rows.json`: prompts as the model's own template renders
    them and, for sft, responses with the end of the turn.

    Raises:
        SystemExit: there are no problems.
    """
    from rlvr.models.loading import load_causal_lm, load_tokenizer
    from rlvr.prompting.conversation import Conversation, choose_template

    source = problems or PROBLEMS / FILES[recipe]
    if not source.is_file():
        raise SystemExit(f"{source} is missing: give --problems FILE, JSON lines with question and, for sft, solution")
    tokenizer = load_tokenizer(name)
    load_causal_lm(name).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    conversation = Conversation(choose_template("auto", tokenizer), tokenizer)
    end = tokenizer.decode(tokenizer.eos_token_id)
    rows = []
    with source.open(encoding="utf-8") as file:  # not `splitlines`, which cuts at separators inside of JSON texts too
        lines = list(file)
    for line in lines[: SFT_ROWS if recipe == "sft" else None]:
        problem = json.loads(line)
        row = {"prompt": conversation.prompt_text(problem["question"]), "completion": problem.get("solution", "") + end}
        if recipe != "sft" or len(conversation.encode(row["prompt"] + row["completion"])) <= MOST_TOKENS:
            rows.append(row)
    (folder / "rows.json").write_text(json.dumps(rows))
