"""What the settings name must be there: told before torch is loaded, and before a run has a folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr.cli.main import main
from rlvr.config import from_dict
from rlvr.errors import UserError
from rlvr.validate import sources
from rlvr.validate.sources import check_model, check_sources

REWARD = ["train", "--reward_functions", "gsm8k_reward_fn"]
MISTAKES = [
    (["train"], "no reward"),
    (["train", "--reward_functions", "gsm8k_reward_fm"], "Did you mean 'gsm8k_reward_fn'"),
    (["train", "--reward_functions", "mine.py:nosuch"], "mine.py defines no function 'nosuch'; it defines: length"),
    (["train", "--reward_functions", "mine.py:length", "--reward_options", '{"length": {"a": 1}}'], "takes no option"),
    (["train", "--reward_functions", "broken.py:f"], "can't import broken.py: NameError: name 'foo' is not defined (broken.py:2)"),
    ([*REWARD, "--reward_plugins", "nosuch.py"], "there is no file nosuch.py"),
    ([*REWARD, "--num_episodes", "-1"], "must be at least 1"),
    ([*REWARD, "--total_episodes", "9"], "unknown flag --total_episodes. Here: TRL counts responses of the whole run: --num_episodes"),
    ([*REWARD, "--need-optim-ckpt"], "Here: optimizer states are in every checkpoint"),
    ([*REWARD, "--prompt_dataset", "promts.jsonl"], "Did you mean 'prompts.jsonl'"),
    ([*REWARD, "--prompt_dataset", "builtin:tset"], "builtin:test"),
    ([*REWARD, "--eval_datasets", "nosuch.csv"], "data file nosuch.csv: no such file"),
    ([*REWARD, "--ptx_dataset", "nosuch.csv", "--ptx_coef", "1"], "data file nosuch.csv: no such file"),
    ([*REWARD, "--prompt_csv_url", "nosuch.csv"], "--prompt_csv_url nosuch.csv: no such file"),
    ([*REWARD, "--conversation_template_config", "qwen25"], "Did you mean 'qwen2.5'"),
    ([*REWARD, "--pretrain", "./mymodle"], "there is no such folder. Did you mean 'mymodel'? Give tiny"),
    ([*REWARD, "--pretrain", "mymodle"], "HF_HUB_OFFLINE forbids"),
    ([*REWARD, "--pretrain", "./mymodel#main"], "--pretrain ./mymodel#main: ./mymodel lies here, and only names on the hub have revisions"),
    ([*REWARD, "--pretrain", "tiny#main"], "--pretrain tiny#main: tiny is built in and has no revisions: leave #main out"),
    ([*REWARD, "--prompt_dataset", "prompts.jsonl#v1"], "prompts.jsonl lies here, and only names on the hub have revisions"),
    ([*REWARD, "--revision", "main"], "unknown flag --revision. Here: a revision is part of a name on the hub: --pretrain OWNER/NAME#REVISION"),
    ([*REWARD, "--ref_model", "a/b/c"], "--ref_model a/b/c: there is no such folder"),
    ([*REWARD, "--use_flash_attn"], "--use_flash_attn needs the package flash-attn and a CUDA GPU: pip install flash-attn"),
    (["sft", "--dataset", "nosuch.jsonl"], "data file nosuch.jsonl: no such file"),
    (["reward-model", "--preference_dataset", "nosuch.jsonl"], "data file nosuch.jsonl: no such file"),
]  # fmt: skip
RUN = """
import json, sys
from rlvr.cli.main import main
for words in json.loads(sys.argv[1]):
    status = main(words)
    print("status", status, "torch" in sys.modules, file=sys.stderr)
"""


def test_mistakes_are_told_without_torch_and_without_a_folder(tmp_path: Path, clean_env) -> None:
    (tmp_path / "mine.py").write_text("def length(response):\n    return 1.0\n")
    (tmp_path / "broken.py").write_text("import math\nf = foo\n")
    (tmp_path / "prompts.jsonl").write_text('{"question": "1+1", "answer": "2"}\n')
    (tmp_path / "mymodel").mkdir()
    before = sorted(p.name for p in tmp_path.iterdir())
    found = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps([words for words, _ in MISTAKES])],
        cwd=tmp_path,
        env=clean_env | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = found.stderr.splitlines()
    assert len(lines) == 2 * len(MISTAKES), found.stderr
    for (words, said), told, ended in zip(MISTAKES, lines[::2], lines[1::2], strict=True):
        assert said in told, (words, told)
        assert ended == "status 2 False", (words, ended)
    left = [p.name for p in tmp_path.iterdir() if p.name != "__pycache__"]
    assert sorted(left) == before


def test_a_dry_run_reads_the_data(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    data = tmp_path / "mine.jsonl"
    data.write_text('{"question": "1+1?", "answer": "2"}\n{"question": "?", "answer": null}\n' * 4)
    assert main([*REWARD, "--dry_run", "--prompt_dataset", "mine.jsonl"]) == 0
    out = capsys.readouterr().out
    assert (
        "4 problems; the run asks 10,240 times: 2.6e+03 pass(es)" in out
        and "4 of 8 problems have no right answer" in out
    )
    data.write_text('{"question": "1+1?", "answer": " "}\n')
    assert main([*REWARD, "--dry_run", "--prompt_dataset", "mine.jsonl"]) == 2
    assert "can't be parsed" in capsys.readouterr().err
    data.write_text('{"q": "1+1?"}\n')
    assert main([*REWARD, "--dry_run", "--prompt_dataset", "mine.jsonl"]) == 2
    assert "no question column" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["mine.jsonl"]


def test_the_hub_is_asked_once_and_its_answer_told(monkeypatch, tmp_path: Path) -> None:
    import httpx
    import huggingface_hub as hub
    from huggingface_hub.errors import HTTPError, RepositoryNotFoundError, RevisionNotFoundError

    asked = []

    def answer(self, name, *, revision, timeout, **_):
        asked.append((name, timeout))
        if revision == "v9":
            raise RevisionNotFoundError("404", response=httpx.Response(404, request=httpx.Request("GET", "http://h")))
        if name == "owner/none":
            raise RepositoryNotFoundError("404", response=httpx.Response(404, request=httpx.Request("GET", "http://h")))
        if name == "owner/lost":
            raise HTTPError("timed out")

    monkeypatch.setattr(hub.HfApi, "model_info", answer)
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda name, file, revision: None)
    check_model("owner/there", "--pretrain")
    with pytest.raises(UserError, match="owner/none: there is no such folder, and the hub has no such model"):
        check_model("owner/none", "--pretrain")
    with pytest.raises(UserError, match="the hub can't be asked .HTTPError: timed out"):
        check_model("owner/lost", "--ref_model")
    with pytest.raises(
        UserError,
        match="--pretrain owner/old#v9: there is no such folder, and the hub's owner/old has no revision 'v9'",
    ):
        check_model("owner/old#v9", "--pretrain")
    check_model("owner/old#v1", "--pretrain")
    assert asked == [(f"owner/{name}", sources.ANSWER_S) for name in ("there", "none", "lost", "old", "old")]
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda name, file, revision: "/cached/config.json")
    check_model("owner/lost", "--pretrain")
    check_model(str(tmp_path), "--pretrain")
    assert len(asked) == 5


def test_an_address_is_not_asked() -> None:
    check_sources(
        from_dict(
            {
                "data": {"prompt_csv_url": "https://nosuch.invalid/a.csv"},
                "reward": {"reward_functions": ["correctness"]},
            }
        )
    )
