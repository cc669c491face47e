"""Whole runs with an environment: stopped and resumed, computed again from the journal, evaluated, with every kind of learning."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlvr.cli.main import main
from rlvr.trainer.online import OnlineTrainer

pytestmark = pytest.mark.usefixtures("process")
FILE = Path(__file__).parents[1] / "naughty_environment.py"
FLAGS = (
    "--num_episodes 3 --num_collect_steps 1 --num_update_steps 1 --experience_batch_size 8 --train_batch_size 4 --num_generations 2 "
    "--max_new_tokens 40 --eval_samples 4 --eval_interval 2 --lr 1e-2 --num_threads 1 --mixed_precision fp32 --no_progress "
    "--max_turns 3 --template_check warn --kl_coef 0.05 --reward_timeout_s 60 --reward_workers 2"
).split()
NEVER_SAME = ("time/", "memory/")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    """Problems, and a template in which many tokens end a turn, so that a random model takes several."""
    folder = tmp_path_factory.mktemp("files")
    lines = [{"question": f"{a}+1=?", "answer": str(a + 1)} for a in range(9)]
    (folder / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    template = json.loads((FILE.parents[1] / "templates" / "tiny.json").read_text())
    template["stop_ids"] += list("135790+-*/=")
    (folder / "template.json").write_text(json.dumps(template))
    lora = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}
    (folder / "lora.json").write_text(json.dumps(lora))
    return {
        "data": str(folder / "data.jsonl"),
        "template": str(folder / "template.json"),
        "lora": str(folder / "lora.json"),
    }


def train(model: str, files: dict[str, str], folder: Path, *words: str, environment: str = "Guess") -> int:
    given = [
        "--prompt_dataset",
        files["data"],
        "--eval_datasets",
        files["data"],
        "--conversation_template_config",
        files["template"],
    ]
    return main(
        [
            "train",
            "--pretrain",
            model,
            "--environment",
            f"{FILE}:{environment}",
            *given,
            *FLAGS,
            "--save_path",
            str(folder),
            *words,
        ]
    )


def rows(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith(NEVER_SAME)} for row in found]


def weights(folder: Path) -> list[bytes]:
    return [
        path.read_bytes() for role in ("actor", "critic") for path in sorted((folder / role).rglob("*.safetensors"))
    ]


@pytest.fixture(scope="module")
def whole(process, micro_model, files, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert train(micro_model, files, folder, "--journal", "9") == 0
    return folder


def test_metrics_of_episodes(whole) -> None:
    found = [row for row in rows(whole) if "environment/turns" in row]
    assert len(found) == 3
    for row in found:
        ended = {name.removeprefix("environment/ended_"): share for name, share in row.items() if "/ended_" in name}
        assert set(ended) == {"done", "turns", "length", "context", "failed"} and sum(ended.values()) == pytest.approx(
            1
        )
        assert row["response/truncated"] == pytest.approx(ended["length"] + ended["context"]) and ended["failed"] == 0
        assert 1 < row["environment/turns"] <= 3 and row["environment/length_tokens"] > 5
        assert row["response/length_tokens"] + row["environment/length_tokens"] <= 40
        assert row["objective/scores"] == pytest.approx(row["reward/environment"])
    held_out = [row for row in rows(whole) if "eval/turns" in row]
    assert len(held_out) == 3 and all(1 <= row["eval/turns"] <= 3 for row in held_out)
    samples = [json.loads(line) for line in (whole / "samples.jsonl").read_text().splitlines()]
    assert any("higher 0." in sample["response"] for sample in samples)


@pytest.mark.parametrize("stop", [1, 4])
def test_a30_a_run_with_turns_goes_on_as_if_nothing_had_happened(
    stop, micro_model, files, whole, tmp_path, monkeypatch
) -> None:
    safe_point, left = OnlineTrainer._safe_point, [stop]

    def stopping(self: OnlineTrainer) -> None:
        left[0] -= 1
        if left[0] == 0:
            self._interrupt.signum = 15
        safe_point(self)

    monkeypatch.setattr(OnlineTrainer, "_safe_point", stopping)
    with pytest.raises(SystemExit) as stopped:
        train(micro_model, files, tmp_path / "run", "--journal", "9")
    assert stopped.value.code == 143 and left[0] == 0
    assert train(micro_model, files, tmp_path / "run", "--journal", "9", "--resume") == 0
    assert weights(tmp_path / "run") == weights(whole) and weights(whole)
    assert rows(tmp_path / "run") == rows(whole)


def test_every_step_is_computed_again_bit_for_bit(whole, capsys) -> None:
    capsys.readouterr()
    assert main(["replay", str(whole), "--bisect", "--json"]) == 0
    steps = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [step["same"] for step in steps] == [True] * 3
    # As the step would have been, scored anew from what the journal has of the environment's scores.
    assert (
        main(["replay", str(whole), "--step", "2", "--with", "eps_clip=0.1", "--rewards", "environment", "--json"]) == 0
    )
    (found,) = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    rewards = [row["objective/scores"] for row in rows(whole) if row.get("step") == 2]
    assert [found[which]["mean reward"] for which in ("was", "otherwise")] == pytest.approx(rewards * 2)
    assert found["cosines"]["gradients"] == pytest.approx(1.0)


def test_eval_plays_too(whole, files, tmp_path, capsys) -> None:
    capsys.readouterr()
    words = [
        "--dataset",
        files["data"],
        "--max_new_tokens",
        "40",
        "--save_path",
        str(tmp_path / "eval"),
        "--mixed_precision",
        "fp32",
    ]
    played = ["--environment", f"{FILE}:Guess", "--max_turns", "3"]
    assert main(["eval", str(whole), *words, *played, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert 1 < result["turns"] <= 3 and result["environment"] >= 0
    assert main(["eval", str(whole), *words, *played, "--resume"]) == 0
    assert "environment, mean score" in capsys.readouterr().out
    assert main(["eval", str(whole), *words, "--max_turns", "3"]) == 2
    assert "--max_turns has no effect without --environment" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [
        "--estimator optimal_token_baseline --kl_in loss",
        "--estimator remax --old_logprobs sampled",
        "--preset dapo --max_refills 1 --accumulation_steps 1",
        "--share_trunk --truncated bootstrap --discount_by turn --lam_alpha 1 --entropy_control clip_cov",
        "--lora_config {lora} --mismatch_correction truncate --loss_reduction constant",
        "--ratio sequence --estimator rloo --loss_reduction sequence_mean --engine generate --entropy_coef 0.01",
    ],
)
def test_whatever_learns_learns_from_turns(flags, micro_model, files, tmp_path) -> None:
    folder = tmp_path / "run"
    assert (
        train(micro_model, files, folder, "--num_episodes", "1", *flags.format(**files).split(), environment="Twice")
        == 0
    )
    (row,) = [row for row in rows(folder) if "environment/turns" in row]
    assert row["environment/turns"] > 1 and row["grad_norm/actor"] >= 0


def test_programs_of_a_model_are_run_and_counted(micro_model, files, tmp_path) -> None:
    """A random model hardly ever writes a call: here a letter begins one, and most of what follows is no program."""
    template = json.loads(Path(files["template"]).read_text())
    template["response_format_tags"] |= {"call_start": "e", "call_end": "~"}
    (tmp_path / "calls.json").write_text(json.dumps(template))
    words = [
        "--environment",
        "python",
        "--conversation_template_config",
        str(tmp_path / "calls.json"),
        "--num_episodes",
        "1",
    ]
    options = '{"Python": {"cost": 0.5, "steps": 10000}}'
    assert train(micro_model, files, tmp_path / "run", *words, "--reward_options", options) == 0
    (row,) = [row for row in rows(tmp_path / "run") if "environment/turns" in row]
    calls = row["reward/environment/calls"]
    assert calls > 0 and 0 < row["reward/environment/errors"] <= calls and row["reward/environment/steps"] > 0
    assert row["objective/scores"] == pytest.approx(-0.5 * calls) and row["environment/ended_failed"] == 0


def test_an_environment_that_fails_too_often_ends_the_run_with_one_message(
    micro_model, files, tmp_path, capsys
) -> None:
    capsys.readouterr()
    lines = [{"question": "reset raise no such level", "answer": "1"}]
    (tmp_path / "bad.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["--prompt_dataset", str(tmp_path / "bad.jsonl"), "--experience_batch_size", "32", "--max_turns", "1"]
    assert train(micro_model, files, tmp_path / "run", *words, environment="Obedient") == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("error: environment 'Obedient' failed on") and "the last: ValueError: no such level" in told
    assert "\n" not in told


def test_some_failures_cost_their_episodes_alone(micro_model, files, tmp_path, capsys) -> None:
    lines = [{"question": text, "answer": "1"} for text in ("reset raise it", "a", "b", "c")]
    (tmp_path / "some.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["--prompt_dataset", str(tmp_path / "some.jsonl"), "--num_episodes", "1", "--max_turns", "2"]
    assert train(micro_model, files, tmp_path / "run", *words, environment="Obedient") == 0
    (row,) = [row for row in rows(tmp_path / "run") if "environment/turns" in row]
    assert row["environment/ended_failed"] == 0.25 and row["objective/scores"] == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.count("the environment failed (error: ValueError: it), and its episode is left out") == 1


def test_hostile_environments_cost_their_episodes_and_a_run_goes_on(micro_model, files, tmp_path, capsys) -> None:
    """One that hangs, ends its process, returns no text, megabytes or no number, and one that fills the context, beside two that end."""
    acts = ["hang", "die", "nothing", "long", "nan", "fill", "end", "end "]
    (tmp_path / "acts.jsonl").write_text("".join(json.dumps({"question": act, "answer": "1"}) + "\n" for act in acts))
    words = ["--prompt_dataset", str(tmp_path / "acts.jsonl"), "--num_generations", "1", "--num_episodes", "1"]
    # Most fail here, which is more than a run would stand.
    more = ["--max_reward_failures", "1", "--reward_timeout_s", "2", "--kl_coef", "0"]
    assert train(micro_model, files, tmp_path / "run", *words, *more, environment="ByQuestion") == 0
    (row,) = [row for row in rows(tmp_path / "run") if "environment/turns" in row]
    # A turn that the length limit cuts is not answered.
    cut = row["environment/ended_length"]
    assert 5 / 8 - cut <= row["environment/ended_failed"] <= 5 / 8 and row["environment/ended_turns"] == 0
    assert row["environment/ended_context"] + row["environment/ended_done"] >= 3 / 8 - cut
    assert row["environment/ended_failed"] + row["environment/ended_context"] > 0.5
    told = " ".join(capsys.readouterr().out.split())
    assert told.count("the environment failed (") == 1 and "its episode is left out" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--engine replay", "--engine replay gives one turn and no more; take --engine hf"),
        (
            "--environment guess",
            "--environment guess: give calculator, python, textarena, openenv, verifiers, path/to/file.py:Class",
        ),
        (f"--environment {FILE}:NotOne", "NotOne is no environment"),
        ("--ray --num_rollout_workers 1", "rollout workers .* generate single turns"),
        ("--rm_checkpoint_path x", "a neural reward model .* reads one question and one response"),
        ("--max_turns 0", "--max_turns 0: must be at least 1"),
        (
            '--environment python --reward_options {"Python":{"sandbox":"docker"}}',
            "sandbox is 'docker'; it must be one of interpreter, bubblewrap",
        ),
        (
            '--environment python --reward_options {"Python":{"step":1}}',
            "takes no option .'step'.; its arguments: .*sandbox, steps, seconds",
        ),
        (
            '--environment calculator --reward_options {"Calculator":{"max_calls":0}}',
            "max_calls is 0; it must be a whole number from 1 to 10000",
        ),
    ],
)
def test_what_cannot_play_is_refused(words, message, micro_model, files, tmp_path, capsys) -> None:
    capsys.readouterr()
    assert train(micro_model, files, tmp_path / "run", *words.split()) == 2
    told = capsys.readouterr().err
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(told)
    assert told.count("\n") == 1


def test_without_an_environment_nothing_of_it_has_an_effect(micro_model, tmp_path, capsys) -> None:
    for words, message in (
        ("--reward_functions environment", "and there is none: give --environment"),
        ("--reward_functions gsm8k_reward_fn --max_turns 3", "no effect without --environment"),
    ):
        assert main(["train", "--pretrain", micro_model, "--save_path", str(tmp_path / "run"), *words.split()]) == 2
        assert message in capsys.readouterr().err
