"""Uploads against a stand-in server: what arrives, what does not, and what is said when it is refused."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hub_server import TOKEN, Hub, point_at, serving

from rlvr.checkpoint.hub import Target, check_target
from rlvr.cli.main import main
from rlvr.errors import UserError

pytestmark = pytest.mark.usefixtures("process")
MODEL_FILES = {
    "README.md", "chat_template.jinja", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
    "tokenizer_config.json",
}  # fmt: skip


@pytest.fixture
def hub(monkeypatch) -> Iterator[Hub]:
    with serving() as hub:
        point_at(monkeypatch, hub.endpoint)
        yield hub


SHORT = "--prompt_dataset builtin --max_samples 16 --reward_functions gsm8k_reward_fn --num_episodes 1 --experience_batch_size 8 " \
    "--train_batch_size 8 --num_update_steps 1 --max_new_tokens 6 --max_length 160 --eval_samples 4"  # fmt: skip


def train(model: str, folder: Path, *flags: str) -> int:
    return main(["train", "--pretrain", model, *SHORT.split(), "--save_path", str(folder), *flags])


@pytest.fixture(scope="module")
def run(process, micro_model, tmp_path_factory) -> Path:
    """A finished run with checkpoints."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    assert train(micro_model, folder) == 0
    return folder


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_run_uploads_its_actor_at_the_end(hub, micro_model, tmp_path, capsys) -> None:
    folder = tmp_path / "run"
    assert train(micro_model, folder, "--push_to_hub", "me/mine", "--hub_private", "--hub_revision", "v1") == 0
    out = capsys.readouterr()
    assert f"uploaded: {hub.endpoint}/me/mine" in out.out.replace("\n", "")
    tree = hub.files["me/mine", "v1"]
    assert set(tree) == MODEL_FILES and hub.files["me/mine", "main"] == {} and hub.private == {"me/mine": True}
    assert tree == everything(folder / "actor" / "modeling")
    card = tree["README.md"].decode()
    assert yaml.safe_load(card.split("---")[1])["library_name"] == "transformers" and "## Results" in card
    assert hub.asked("objects/batch") == 1 and hub.asked("/api/validate-yaml")  # by LFS, the card checked first
    # The token goes to the hub and nowhere else: not to the large file's address, no file, no output.
    known = dict(zip(hub.requests, hub.authorised, strict=True))
    assert all(known[r] != ("PUT /lfs/" in r) for r in known if not r.startswith("GET"))
    assert TOKEN.encode() not in b"".join(everything(folder).values()) and TOKEN not in out.out + out.err


def test_push_uploads_a_saved_run_and_only_its_model(hub, run, capsys) -> None:
    before = everything(run)
    assert main(["push", str(run), "mine"]) == 0
    assert capsys.readouterr().out == f"uploaded: {hub.endpoint}/somebody/mine\n"
    assert set(hub.files["somebody/mine", "main"]) == MODEL_FILES and hub.private == {"somebody/mine": False}
    assert main(["push", str(run / "actor" / "modeling"), "mine"]) == 0  # it exists: no mistake
    assert everything(run) == before


def test_push_uploads_more_when_asked(hub, run) -> None:
    assert main(["push", str(run), "me/all", "--with_run", "--with_checkpoints", "--message", "all of it"]) == 0
    names = set(hub.files["me/all", "main"])
    assert {f"run/{name}" for name in ("config.yaml", "environment.json", "metrics.jsonl", "samples.jsonl")} <= names
    assert any(name.startswith("checkpoints/step-") and name.endswith("actor/training.safetensors") for name in names)
    assert MODEL_FILES <= names and not any(name.startswith(("critic", "run/actor")) for name in names)


def test_a_card_that_is_missing_is_made_on_the_way(hub, run, tmp_path) -> None:
    folder = tmp_path / "older"
    shutil.copytree(run, folder)
    (folder / "actor" / "modeling" / "README.md").unlink()
    assert main(["push", str(folder), "me/mine"]) == 0
    tree = hub.files["me/mine", "main"]
    assert set(tree) == MODEL_FILES and "# older" in tree["README.md"].decode()
    assert not (folder / "actor" / "modeling" / "README.md").exists()


def test_small_files_go_without_lfs_through_the_client_with_xet(hub, run, monkeypatch) -> None:
    point_at(monkeypatch, hub.endpoint, xet=True)
    hub.large = (".nothing",)
    assert main(["push", str(run), "me/mine"]) == 0
    assert set(hub.files["me/mine", "main"]) == MODEL_FILES and hub.asked("objects/batch") == 0


@pytest.mark.parametrize(
    ("refuse", "said"),
    [
        (("/api/repos/create", 401), "`hf auth login`"),
        (("/api/repos/create", 403), "may not write there"),
        (("/api/repos/create", 404), "no such owner"),
        (("/api/repos/create", 500), "500"),
        (("/preupload/", 403), "may not write there"),
        (("/preupload/", 500), "500"),
        (("/commit/", 409), "409"),
        (("objects/batch", 403), "may not write there"),
        (("/lfs/", 500), "500"),
    ],
    ids=lambda v: f"{v[0].strip('/')} {v[1]}" if isinstance(v, tuple) else "",
)
def test_a_refusal_is_one_message(hub, run, refuse, said, capsys) -> None:
    hub.refuse = refuse
    before = everything(run)
    assert main(["push", str(run), "me/mine"]) == 2
    text = capsys.readouterr().err
    told = [line for line in text.splitlines() if line.startswith("error:")]
    assert len(told) == 1 and "Traceback" not in text and TOKEN not in text
    assert told[0].startswith(f"error: not uploaded to me/mine on {hub.endpoint}: ") and said in told[0]
    assert told[0].endswith(f"Nothing in {run} was changed: run this again")
    assert everything(run) == before and not hub.files.get(("me/mine", "main"))


def test_xet_that_is_refused_is_one_message(hub, run, monkeypatch, capsys) -> None:
    point_at(monkeypatch, hub.endpoint, xet=True)
    hub.refuse = ("xet-write-token", 403)
    assert main(["push", str(run), "me/mine"]) == 2
    text = capsys.readouterr().err
    assert text.count("error: not uploaded to me/mine") == 1 and "Traceback" not in text


def test_a_run_whose_upload_is_refused_is_saved_and_says_how_to_go_on(hub, micro_model, tmp_path, capsys) -> None:
    hub.refuse = ("/api/repos/create", 403)
    folder = tmp_path / "run"
    assert train(micro_model, folder, "--push_to_hub", "me/mine", "--hub_private") == 2
    out = capsys.readouterr()
    assert (
        f"the run is finished and the model saved in {folder}/actor/modeling, but it was not uploaded to me/mine"
        in out.err
    )
    later = f"rlvr push {folder} me/mine --private"
    assert out.err.rstrip().endswith(later) and "Traceback" not in out.err
    assert set(everything(folder / "actor" / "modeling")) == MODEL_FILES and (folder / "metrics.jsonl").is_file()
    hub.refuse = None
    assert main(later.split()[1:]) == 0 and hub.private == {"me/mine": True}


def test_a_network_that_is_gone_is_one_message(run, monkeypatch, capsys) -> None:
    with serving() as hub:
        point_at(monkeypatch, hub.endpoint)
    assert main(["push", str(run), "me/mine"]) == 2  # the port is closed now
    text = capsys.readouterr().err
    assert text.count("error: not uploaded to me/mine") == 1 and "ConnectError" in text and "Traceback" not in text


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (Target("me/mine/else"), "NAME or OWNER/NAME"),
        (Target("me/m ine"), "NAME or OWNER/NAME"),
        (Target("--private"), "NAME or OWNER/NAME"),
        (Target(""), "NAME or OWNER/NAME"),
        (Target("me/mine", revision=" "), "the revision is empty"),
    ],
)
def test_names_that_are_none_are_found_without_the_hub(hub, target, said) -> None:
    with pytest.raises(UserError, match=said):
        check_target(target)
    assert hub.requests == []


def test_what_would_fail_at_the_end_is_found_at_the_beginning(hub, micro_model, tmp_path, monkeypatch, capsys) -> None:
    folder = tmp_path / "run"
    assert train(micro_model, folder, "--push_to_hub", "me/mine/x") == 2
    assert "--push_to_hub me/mine/x: 'me/mine/x' is no name of a repository" in capsys.readouterr().err
    point_at(monkeypatch, hub.endpoint, token=None)
    for command in (["train", "--reward_functions", "gsm8k_reward_fn"], ["sft"], ["reward-model"]):
        assert main([*command, "--push_to_hub", "me/mine", "--save_path", str(folder)]) == 2
        assert "--push_to_hub me/mine: there is no token for the hub: log in with" in capsys.readouterr().err
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert train(micro_model, folder, "--push_to_hub", "me/mine") == 2
    assert "HF_HUB_OFFLINE" in capsys.readouterr().err
    assert not folder.exists() and hub.requests == []


def test_folders_without_a_model(hub, run, tmp_path, capsys) -> None:
    (tmp_path / "empty").mkdir()
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "metrics.jsonl").write_text("")
    for words, said in (
        ([tmp_path / "none", "x"], "is no folder"),
        ([tmp_path / "empty", "x"], "holds no trained model (it holds nothing)"),
        ([begun, "x"], "holds no trained model (it holds metrics.jsonl)"),
        ([run / "actor" / "modeling", "x", "--with_run"], "is no run's folder"),
        ([run], "REPO"),
    ):
        assert main(["push", *map(str, words)]) == 2
        assert said in capsys.readouterr().err
    assert hub.requests == []


@pytest.mark.parametrize(
    ("command", "flags", "files", "kind"),
    [
        ("sft", "--dataset builtin --max_steps 1 --train_batch_size 4", MODEL_FILES, "text-generation"),
        (
            "reward-model",
            "--preference_dataset builtin --max_steps 1 --train_batch_size 4",
            {"README.md", "model.safetensors", "config.json", "tokenizer.json"},
            "text-classification",
        ),
    ],
)
def test_supervised_runs_are_uploaded_with_a_card_of_their_own(
    command, flags, files, kind, hub, micro_model, tmp_path
) -> None:
    common = "--max_samples 16 --max_length 160 --eval_samples 4 --push_to_hub me/mine --save_path".split()
    assert main([command, "--pretrain", micro_model, *flags.split(), *common, str(tmp_path / "run")]) == 0
    tree = hub.files["me/mine", "main"]
    assert files <= set(tree) and not any("training" in name for name in tree)
    card = tree["README.md"].decode()
    assert yaml.safe_load(card.split("---")[1])["pipeline_tag"] == kind and "- Data: builtin" in card
    assert micro_model not in card.partition("- Command")[0]  # no path of this machine but in the command


def test_an_adapter_is_uploaded_where_only_that_was_saved(hub, micro_model, tmp_path) -> None:
    lora = tmp_path / "lora.json"
    lora.write_text(json.dumps({"r": 2, "lora_alpha": 4, "target_modules": "all-linear"}))
    flags = ("--lora_config", str(lora), "--no_lora_merge", "--push_to_hub", "me/mine")
    assert train(micro_model, tmp_path / "run", *flags) == 0
    tree = hub.files["me/mine", "main"]
    assert {"adapter_config.json", "adapter_model.safetensors", "README.md"} <= set(tree)
    assert (
        "config.json" not in tree
        and yaml.safe_load(tree["README.md"].decode().split("---")[1])["library_name"] == "peft"
    )
