"""`rlvr sft` and `rlvr reward-model` as a user calls them: the built-in model, files, mistakes, stopping and going on."""

import json
from pathlib import Path

import pytest
import torch

from rlvr.checkpoint.storage import load_tensors
from rlvr.cli.main import main

pytestmark = pytest.mark.usefixtures("process", "tiny_cache")
ROOT = Path(__file__).parents[1]
SHORT = ["--max_steps", "2", "--train_batch_size", "4", "--max_samples", "16", "--log_interval", "1"]
GOOD = {
    "sft": [{"prompt": f"<|user|>{n}+1=?<|assistant|>", "response": f"<answer>{n + 1}</answer>"} for n in range(12)],
    "reward-model": [{"question": f"{n}+1=?", "chosen": f"{n + 1}", "rejected": f"{n}"} for n in range(12)],
}
FLAG = {"sft": "--dataset", "reward-model": "--preference_dataset"}
BOTH = pytest.mark.parametrize("command", ["sft", "reward-model"])


def write(path: Path, rows: list[dict]) -> str:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def call(command: str, tmp_path: Path, *flags: str) -> int:
    save = [] if "--save_path" in flags else ["--save_path", str(tmp_path / "run")]
    try:
        return main([command, *SHORT, *save, *flags])
    except SystemExit as stop:  # the argument parser's own messages
        assert isinstance(stop.code, int)
        return stop.code


def fails(capsys, command: str, tmp_path: Path, *flags: str) -> str:
    """The message, after checking how it was given."""
    status = call(command, tmp_path, *flags)
    captured = capsys.readouterr()
    assert status == 2, captured.out
    assert "Traceback" not in captured.err + captured.out and captured.err.count("error:") <= 1
    return " ".join((captured.err + captured.out).split())


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_fine_tuning_the_built_in_model_on_its_own_problems(tmp_path) -> None:
    assert (
        call("sft", tmp_path, "--max_steps", "12", "--train_batch_size", "16", "--max_samples", "200", "--packing") == 0
    )
    logged = rows(tmp_path / "run")
    assert logged[-1]["eval/loss"] < 0.5 * logged[0]["eval/loss"]
    # What comes out is what PPO and a further fine-tuning start from.
    model = str(tmp_path / "run" / "actor" / "modeling")
    assert call("sft", tmp_path, "--save_path", str(tmp_path / "next"), "--checkpoint_path", model) == 0
    assert rows(tmp_path / "next")[0]["eval/loss"] == pytest.approx(logged[-1]["eval/loss"], rel=1e-5)


def test_a_reward_model_of_the_built_in_problems_ranks_held_out_pairs(tmp_path) -> None:
    """An eighth of the default steps; the defaults reach more (docs/sft_and_reward_models.md)."""
    flags = ["--max_steps", "45", "--train_batch_size", "32", "--max_samples", "1440", "--log_interval", "15"]
    assert call("reward-model", tmp_path, *flags) == 0
    last = rows(tmp_path / "run")[-1]
    assert last["eval/accuracy"] > 0.65 and last["eval/calibration_error"] < 0.15
    saved = tmp_path / "run" / "reward_model" / "modeling"
    statistics = json.loads((saved / "reward_statistics.json").read_text())
    assert statistics["mean"] == pytest.approx(last["eval/score_mean"]) and statistics["std"] > 0.5


@BOTH
def test_files_folders_and_held_out_shares(command, tmp_path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "train.jsonl", GOOD[command])
    write(folder / "test.jsonl", GOOD[command][:4])
    assert call(command, tmp_path, FLAG[command], str(folder), "--eval_dataset", str(folder)) == 0
    assert "eval/loss" in rows(tmp_path / "run")[0]
    csv = tmp_path / "data.csv"
    names = list(GOOD[command][0])
    csv.write_text("\n".join([",".join(names), *(",".join(row[n] for n in names) for row in GOOD[command])]))
    share = ["--eval_share", "0.25", "--save_path", str(tmp_path / "csv"), "--num_epochs", "2"]
    assert main([command, FLAG[command], str(csv), *share, "--train_batch_size", "4", "--log_interval", "1"]) == 0
    assert rows(tmp_path / "csv")[-1]["step"] == 5  # two passes over the nine rows that are left, four at a time
    assert rows(tmp_path / "csv")[-1]["samples"] == 20


def test_rows_that_are_left_out_are_counted(capsys, tmp_path) -> None:
    same = {"question": "1", "chosen": "b", "rejected": "b"}
    data = write(tmp_path / "d.jsonl", [*GOOD["reward-model"], same, same | {"rejected": ""}])
    assert call("reward-model", tmp_path, "--preference_dataset", data) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "1 of 14 pairs left out: chosen and rejected are the same" in shown
        and "1 of 14 pairs left out: a response is" in shown
    )
    only = write(tmp_path / "only.jsonl", [same])
    assert "chosen and rejected are the same" in fails(
        capsys, "reward-model", tmp_path, "--preference_dataset", only, "--save_path", str(tmp_path / "only")
    )


@BOTH
@pytest.mark.parametrize(
    "flags",
    [
        ("--max_steps", "0"),
        ("--train_batch_size", "0"),
        ("--lr", "-1"),
        ("--eval_share", "1.5"),
        ("--eval_share", "0.1", "--eval_dataset", "x.jsonl"),
        ("--micro_batch_tokens", "10"),
        ("--num_epochs", "3"),
        ("--prompt_text_column", "p", "--question_column", "q"),
        ("--max_length", "0"),
        ("--log_interval", "0"),
        ("--plugin", "gemini_auto"),
        ("--tp", "2"),
        ("--mixed_precision", "fp16"),
        ("--pretrain", "/nowhere/no-such-folder"),
        ("--nonsense", "1"),
    ],
)
def test_settings_that_can_not_work_say_why(capsys, command, flags, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "x.jsonl", GOOD[command])
    assert flags[0].removeprefix("--pretrain") in fails(capsys, command, tmp_path, *flags)


@BOTH
def test_data_that_can_not_be_used(capsys, command, tmp_path) -> None:
    flag = FLAG[command]
    assert "nowhere.jsonl" in fails(capsys, command, tmp_path, flag, str(tmp_path / "nowhere.jsonl"))
    message = fails(capsys, command, tmp_path, flag, write(tmp_path / "d.jsonl", [{"foo": "a"}]))
    assert "d.jsonl:1" in message and "foo" in message
    long = write(tmp_path / "long.jsonl", [{k: v + "9" * 200 for k, v in row.items()} for row in GOOD[command]])
    assert "160 tokens" in fails(capsys, command, tmp_path, flag, long)
    roles = [{"messages": [{"role": "x", "content": "a"}], "chosen": [{"role": "x", "content": "a"}], "rejected": "b"}]
    assert "role 'x'" in fails(capsys, command, tmp_path, flag, write(tmp_path / "r.jsonl", roles))


def test_columns_without_their_partner(capsys, tmp_path) -> None:
    data = write(tmp_path / "d.jsonl", GOOD["sft"])
    assert "--text_column" in fails(capsys, "sft", tmp_path, "--dataset", data, "--prompt_text_column", "p")
    assert "--center_rewards_coefficient -1" in fails(
        capsys, "reward-model", tmp_path, "--center_rewards_coefficient", "-1"
    )


def test_rows_longer_than_the_model_has_places(capsys, tmp_path) -> None:
    assert call("sft", tmp_path, "--max_length", "4000") == 0
    assert "rows may have 512 tokens, the model's limit" in " ".join(capsys.readouterr().out.split())


@BOTH
def test_a_folder_that_holds_a_run_and_going_on_with_it(capsys, command, tmp_path) -> None:
    assert call(command, tmp_path) == 0
    before = rows(tmp_path / "run")
    assert "holds another run" in fails(capsys, command, tmp_path)
    assert "other settings: settings.train.lr" in fails(capsys, command, tmp_path, "--resume", "--lr", "1e-5")
    assert call(command, tmp_path, "--resume") == 0
    assert rows(tmp_path / "run") == before
    assert main([command, "--resume"]) == 2 and "--save_path" in capsys.readouterr().err


def test_a_saved_configuration_gives_the_same_run(tmp_path) -> None:
    assert call("sft", tmp_path) == 0
    again = ["--config", str(tmp_path / "run" / "config.yaml"), "--save_path", str(tmp_path / "again")]
    assert main(["sft", *again]) == 0
    first, second = (
        load_tensors(next((tmp_path / n / "checkpoints").glob("*/actor/training.safetensors")))["optimizer"]
        for n in ("run", "again")
    )
    assert all(torch.equal(first["state"][i]["exp_avg"], second["state"][i]["exp_avg"]) for i in first["state"])
