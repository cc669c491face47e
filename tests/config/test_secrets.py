"""Secrets in settings reach no file, tracker or message; a saved file that lost one says so."""

import json

import pytest

from rlvr.cli import main as command_line
from rlvr.config import base_config, by_section
from rlvr.config.secrets import REDACTED, redacted
from rlvr.errors import UserError
from rlvr.run import folder as folders
from rlvr.validate.settings import check_ranges

ADDRESS = "https://me:hunter2@host.example/prompts.csv?X-Amz-Signature=abc123&part=1"
OPTIONS = json.dumps({"judge": {"api_key": 'sk-"quoted"-1', "calls": 3, "HF_TOKEN": "hf_x", "tokens": 5}})
SECRETS = ("hunter2", "abc123", "sk-", "quoted", "hf_x")


def leaks(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("openai/gsm8k", None),
        ("https://host/a.csv", None),
        ("a ratio of 3:4, a path /x/y?z", None),
        ("{'tokens': 5, 'keys': ['a']}", None),
        ("http://host/a#access_token=1", f"http://host/a#{REDACTED}"),
        ("{'password': 'x y'}", f"{{'password': '{REDACTED}'}}"),
        ("see https://u@h/ and https://h/?q", f"see https://{REDACTED}@h/ and https://h/?{REDACTED}"),
    ],
)
def test_what_is_secret_in_a_text(text, left) -> None:
    assert redacted(text) == (text if left is None else left)
    assert redacted(redacted(text)) == redacted(text)
    assert redacted({"a": [text, 1, None]}) == {"a": [redacted(text), 1, None]}


def test_no_file_of_a_run_has_them(tmp_path, monkeypatch) -> None:
    config = base_config(by_section({"prompt_csv_url": ADDRESS, "reward_options": OPTIONS}))
    monkeypatch.setattr("sys.argv", ["rlvr", "train", "--prompt_csv_url", ADDRESS, f"--reward_options={OPTIONS}"])
    folders.write_config(config, tmp_path)
    folders.write_environment(tmp_path, "cpu", 1)
    told = json.dumps(folders.run_state(config)) + "".join(file.read_text() for file in tmp_path.iterdir())
    assert leaks(told) == [] and told.count("host.example") == 3 and "calls" in told
    config.data.prompt_csv_url = ADDRESS.replace("abc123", "signed-anew")
    assert json.dumps(folders.run_state(config)) in told  # a signature that is renewed is no other run


def test_a_file_without_its_secret_asks_for_it() -> None:
    saved = by_section({"prompt_csv_url": redacted(ADDRESS)})
    with pytest.raises(UserError, match="--prompt_csv_url https://<redacted>@host.*give it again"):
        check_ranges(base_config(saved))


def test_messages_of_errors(capsys) -> None:
    def fails(argv: list[str]) -> None:
        raise UserError(f"{ADDRESS}: the server says 403; --reward_options {OPTIONS}")

    assert command_line.run(fails, []) == 2 and leaks(capsys.readouterr().err) == []
