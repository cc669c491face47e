"""`--help` fits 100 columns, goes by topic and documents every flag; flags are taken with - and _; mistakes name the nearest."""

import pytest

from rlvr.cli.commands import COMMANDS
from rlvr.cli.main import main
from rlvr.config import Config, parse
from rlvr.config.catalog import catalog, flags_by_spelling
from rlvr.config.flags import parse_with_origins

WORDS = {"score": ["a.jsonl", "--reward", "math_reward_fn"], "eval": ["tiny"], "audit": ["math_reward_fn"]}


def run(capsys, *words: str) -> tuple[int, str]:
    try:
        status = main(list(words))
    except SystemExit as stop:
        status = stop.code or 0
    captured = capsys.readouterr()
    return status, captured.out + captured.err


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_fits_and_documents_every_flag(name: str, capsys) -> None:
    status, text = run(capsys, name, "--help")
    assert status == 0
    assert max(map(len, text.splitlines())) <= 100
    assert text.startswith(f"usage: rlvr {name}")
    found = COMMANDS[name].flags_or_tree()
    if isinstance(found, type):  # a tree; more below
        assert all(flag.text for section in catalog(found) for flag in section.flags)
        return
    for action in found._actions:
        assert action.help, action.dest
        assert all(option in text for option in action.option_strings)


def test_the_overview_has_each_setting_on_one_line_by_topic(capsys) -> None:
    status, text = run(capsys, "train", "--help")
    lines = text.splitlines()
    assert status == 0 and max(map(len, lines)) <= 100
    for section in catalog(Config):
        at = next(i for i, line in enumerate(lines) if line.startswith(f"{section.name}: "))
        for offset, flag in enumerate(section.flags, start=1):
            line = lines[at + offset]
            assert line.startswith("  --") and flag.name in line.split()[0], line
            assert line.endswith("]"), line
            assert len(section.flags) <= 45  # a topic fits a screen
            assert flag.text, flag.name
    # What differs for the built-in model is said.
    assert any("--lr X" in line and "[9e-06; tiny: 0.0003]" in line for line in lines)
    # All values of a choice are.
    assert any("--engine NAME" in line and "hf, generate, paged, vllm, replay" in line for line in lines)


def test_topics_and_flags_in_full(capsys) -> None:
    status, text = run(capsys, "train", "--help", "rollout")
    assert status == 0 and "--max_new_tokens, --max_seq_len, --rl_max_new_tokens, --response_length N" in text
    assert "{hf,generate,paged,vllm,replay}" in text and "--lr" not in text
    _, one = run(capsys, "help", "train", "kl-coef")
    assert "--kl_coef, --rl_kl_coef X" in one and "topic: algo" in one
    status, whole = run(capsys, "train", "--help-all")
    assert status == 0 and max(map(len, whole.splitlines())) <= 100
    for flag in flags_by_spelling(Config).values():
        words = " ".join(whole.split())
        assert f"--{flag.name}" in whole and flag.text in words, flag.name
        assert all(f"--{alias}" in whole for alias in flag.aliases)
    status, text = run(capsys, "train", "--help", "rollot")
    assert status == 2 and "Did you mean 'rollout'" in text


def test_the_program(capsys) -> None:
    import rlvr

    for words in ([], ["--help"], ["help"]):
        status, text = run(capsys, *words)
        assert status == 0 and all(f"rlvr {name}" in text for name in COMMANDS)
    assert run(capsys, "--version") == (0, f"rlvr {rlvr.__version__}\n")
    status, text = run(capsys, "trian")
    assert status == 2 and "Did you mean 'train'?" in text and text.count("\n") == 1
    assert run(capsys, "help", "trian")[0] == 2


VALUES = {"N": "7", "X": "0.75", "TEXT": "some", "TEXT ...": "some", "X ...": "0.75", "BOOL": "True"}
FLAGS = [flag for section in catalog(Config) for flag in section.flags if flag.name not in ("preset", "pretrain")]


def line(nth: int, dashes: bool, equals: bool = False) -> list[str]:
    """A command line of all flags, each by its nth name, or its last."""
    words = []
    for flag in FLAGS:
        name = (flag.name, *flag.aliases)[min(nth, len(flag.aliases))]
        if flag.is_switch and flag.default:
            name = f"no_{flag.name}"
        value = [] if flag.is_switch else [flag.choices[-1] if flag.choices else VALUES[flag.metavar]]
        typed = f"--{name.replace('_', '-') if dashes else name}"
        words += [f"{typed}={value[0]}"] if equals and value else [typed, *value]
    return words


def test_every_flag_is_taken_and_changes_its_setting() -> None:
    config = parse(line(0, dashes=False))
    for flag in FLAGS:
        assert getattr(getattr(config, flag.section), flag.name) != flag.default, flag.name


@pytest.mark.parametrize("nth", range(max(len(flag.aliases) for flag in FLAGS) + 1))
def test_every_flag_is_taken_with_dashes_and_by_its_aliases(nth: int) -> None:
    want = parse(line(0, dashes=False))
    assert parse(line(nth, dashes=True)) == want
    assert parse(line(nth, dashes=False, equals=True)) == want
    assert parse(line(nth, dashes=True, equals=True)) == want


def test_settings_that_other_settings_lie_on_are_taken_with_aliases() -> None:
    assert parse(["--model", "x"]) == parse(["--model-name-or-path", "x"]) == parse(["--pretrain", "x"])


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["train", "--num-episodez", "3"], "--num_episodes"),
        (["train", "--lrr", "3"], "--lr"),
        (["train", "--lora", "x"], "--lora_config' or '--lora_merge"),
        (["train", "--dry-rum"], "--dry_run"),
        (["train", "--learning_rat", "3"], "--learning_rate"),
        (["sft", "--num-epoch", "3"], "--num_epochs"),
        (["reward-model", "--rejected-text-colum", "x"], "--rejected_text_column"),
        (["llm", "--train", "--rl-gama", "0.9"], "--rl_gamma"),
        (["score", "x", "--rewrd", "y"], "--reward"),
        (["eval", "tiny", "--max-new-token", "3"], "--max_new_tokens"),
        (["template", "check", "tiny", "--tokenizr", "x"], "--tokenizer"),
        (["doctor", "--jsn"], "--json"),
    ],
)
def test_a_mistyped_flag_names_the_nearest(words, near, capsys) -> None:
    status, text = run(capsys, *words)
    typed = next(word for word in words if word.startswith("--") and word != "--train")
    assert status == 2 and f"unknown flag {typed}. Did you mean '{near}'?" in text
    assert text.count("\n") == 1


def test_dashes_elsewhere(tmp_path, capsys) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"response": "42", "truth": "42"}\n')
    assert main(["score", str(path), "--reward", "math_reward_fn", "--gold-column", "truth", "--workers=0"]) == 0
    assert main(["score", str(path), "--reward", "math_reward_fn", "--gold_column=truth", "--workers", "0"]) == 0
    status, text = run(capsys, "doctor", "everything")
    assert status == 2 and "one argument too many" in text


def test_where_values_come_from(tmp_path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("train:\n  lr: 0.5\n  critic_lr: 0.25\nalgo:\n  preset: dapo\n")
    parsed = parse_with_origins(["--config", str(path), "--learning-rate", "0.125", "--no-progress"])
    assert parsed.config.train.lr == 0.125 and parsed.config.train.critic_lr == 0.25
    origins = {name: parsed.origins[section, name] for section, name in parsed.origins}
    assert origins["lr"] == "flag" and origins["critic_lr"] == "file" and origins["preset"] == "file"
    assert origins["dynamic_sampling"] == "preset dapo" and origins["num_threads"] == "model tiny"
    assert origins["gamma"] == "default" and origins["progress"] == "flag"
    assert parsed.flags == {("train", "lr"), ("log", "progress")}


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    import subprocess
    import sys

    command = f"{sys.executable} -m rlvr train --help-all | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout.startswith("usage") and "Traceback" not in done.stderr
