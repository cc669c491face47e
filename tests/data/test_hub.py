"""Sets of the hub, without the hub: `datasets.load_dataset` itself reads local folders laid out as the hub has them."""

import json
from pathlib import Path

import pytest

from rlvr.data.readers import read_problems
from rlvr.data.rows import KNOWN_SETS, HubName, load_hub_rows, parse_hub_name
from rlvr.errors import UserError


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder; `load_dataset("owner/name")` looks there first. No network is asked."""
    import datasets
    import huggingface_hub.constants

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def publish(folder: Path, configs: dict[str, dict[str, list[dict]]]) -> None:
    """Lay out a data set as the hub has it: files, and a card that lists configurations and splits."""
    card = ["---", "configs:"]
    for config, splits in configs.items():
        card += [f"- config_name: {config}", "  data_files:"]
        for split, rows in splits.items():
            path = folder / config / f"{split}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(json.dumps(row) for row in rows))
            card += [f"  - split: {split}", f"    path: {config}/{split}.jsonl"]
    (folder / "README.md").write_text("\n".join([*card, "---", ""]))


GSM8K = {"question": "How many?", "answer": "9 * 200 = 1800\n#### 1,800"}


def rows_of(source: str, split: str | None = None) -> list[dict]:
    name = parse_hub_name(source)
    assert name is not None
    return [dict(row.values) for row in load_hub_rows(name, split)]


def test_names() -> None:
    assert parse_hub_name("openai/gsm8k") == HubName("openai/gsm8k", None, None)
    assert parse_hub_name("a-b/c.d_e@main:train[:10%]") == HubName("a-b/c.d_e", "main", "train[:10%]")
    assert parse_hub_name("openai/gsm8k:test") == HubName("openai/gsm8k", None, "test")
    assert parse_hub_name("openai/gsm8k:test#e53f048") == HubName("openai/gsm8k", None, "test", "e53f048")
    assert parse_hub_name("me/sums#refs/pr/1") == HubName("me/sums", None, None, "refs/pr/1")
    for odd in ("gsm8k", "a/b/c", "a b/c", "a/b@:x", "a/b#", ""):
        assert parse_hub_name(odd) is None


def test_a_revision_is_asked_for(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    rows, asked = datasets.Dataset.from_list([{"q": 1}]), []
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: asked.append(kwargs["revision"]) or rows)
    monkeypatch.setattr(
        datasets, "get_dataset_split_names", lambda *args, revision: asked.append(revision) or ["train"]
    )
    assert rows_of("me/sums#v1") == [{"q": 1}] and asked == ["v1", "v1"]
    (hub / "me").mkdir()
    for source, said in (
        ("me#v1", "me lies here, and only names on the hub"),
        ("./no#v1", "lies here"),
        ("me/sums#", "'' is no revision"),
    ):
        with pytest.raises(UserError, match=said):
            read_problems([source])


def test_known_set_brings_configuration_split_and_parsing(hub: Path) -> None:
    other = {"question": "socratic", "answer": "#### 1"}
    publish(hub / "openai/gsm8k", {"main": {"train": [GSM8K], "test": [GSM8K, GSM8K]}, "socratic": {"train": [other]}})
    name = parse_hub_name("openai/gsm8k")
    assert name is not None and KNOWN_SETS["openai/gsm8k"].config == "main"
    assert rows_of("openai/gsm8k") == [GSM8K]
    assert len(rows_of("openai/gsm8k", "test")) == 2
    assert len(rows_of("openai/gsm8k:test", "train")) == 2
    assert rows_of("openai/gsm8k@socratic") == [other]
    assert load_hub_rows(name, "test")[1].place == "openai/gsm8k:test, row 1"


def test_unknown_set_with_its_own_splits(hub: Path) -> None:
    publish(hub / "me/sums", {"default": {"train": [{"q": 1}], "validation": [{"q": 2}]}})
    publish(hub / "me/single", {"default": {"test": [{"q": 3}]}})
    assert rows_of("me/sums") == [{"q": 1}]
    assert rows_of("me/sums:validation") == [{"q": 2}]
    assert rows_of("me/single", "train") == [{"q": 3}]
    with pytest.raises(
        UserError, match="'me/sums' has no split 'test'; its splits: train, validation. Name one: me/sums:train"
    ):
        rows_of("me/sums", "test")
    with pytest.raises(UserError, match=r"'me/sums'.*can't be loaded from the hub.*owner/name@config:split#revision"):
        rows_of("me/sums:nope")


def test_problems_of_a_known_set(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through `read_problems`: columns and answer parsing come from the table. (A folder of that name would be read as a
    folder, so the set is laid out elsewhere.)"""
    import datasets

    rows = datasets.Dataset.from_list([{"problem": "p", "answer": 0.5, "question": "no"}])
    calls = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: calls.append((args, kwargs)) or rows)
    (problem,) = read_problems(["AI-MO/aimo-validation-amc"], split="test")
    assert (problem.question, problem.answer, problem.columns) == ("p", "0.5", {"question": "no"})
    assert problem.source == "AI-MO/aimo-validation-amc:train, row 0"
    assert calls == [(("AI-MO/aimo-validation-amc", None), {"split": "train"})]
    (problem,) = read_problems(["AI-MO/aimo-validation-amc"], question_column="question")
    assert problem.question == "no"


def test_remote_code_is_never_run(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    given = {}

    def load_dataset(
        path: str, name: str | None = None, split: str | None = None, trust_remote_code: bool = True
    ) -> object:
        given["trust"] = trust_remote_code
        return datasets.Dataset.from_list([{"q": 1}])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    rows_of("me/sums:train")
    assert given == {"trust": False}


def test_no_network_says_what_to_do(hub: Path) -> None:
    with pytest.raises(UserError) as error:
        read_problems(["openai/gsm8k"])
    message = str(error.value)
    assert "'openai/gsm8k' (configuration main) can't be loaded from the hub" in message
    assert "Check the name" in message and "network" in message and "JSONL or CSV file" in message
    with pytest.raises(UserError, match="'me/nothing'"):
        read_problems(["me/nothing"])
