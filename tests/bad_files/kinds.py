"""Every bad file: what it is of, how it is damaged, and the command that is given it."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.checkpoint.storage import MANIFEST, sha256
from rlvr.config import Config
from rlvr.config.catalog import catalog

from . import damage as d
from .workshop import Workshop, rows


@dataclass(frozen=True)
class BadFile:
    """One file, and who reads it.

    Attributes:
        kind: what it is of, a row of the table.
        title: the file and its damage.
        make: writes it into an empty folder; returns the words of the command.
        named: what the message must name.
    """

    kind: str
    title: str
    make: Callable[[Workshop, Path], list[str]]
    named: str


def _in_words(words: tuple[str, ...], shop: Workshop, folder: Path, file: Path) -> list[str]:
    places = {"{folder}": str(folder), "{file}": str(file), "{model}": shop.model}
    known = [word for word in words if word != "{train}"]
    given = [next((word.replace(name, at) for name, at in places.items() if name in word), word) for word in known]
    return shop.words(*given) if "{train}" in words else given


def files(
    kind: str,
    name: str,
    damages: Mapping[str, d.Damage],
    words: tuple[str, ...],
    whole: str | bytes = "",
    seed: int = 0,
) -> Iterator[BadFile]:
    """A file by itself with each of these damages.

    Args:
        words: the command, with {file} for it, {model} for a model, {train} for a training of that.
        whole: what is in it before.
    """
    for what, damage in damages.items():

        def make(shop: Workshop, folder: Path, what: str = what, damage: d.Damage = damage) -> list[str]:
            path = folder / name
            path.write_bytes(whole.encode() if isinstance(whole, str) else whole)
            damage(path, random.Random(f"{seed} {name} {what}"))
            return _in_words(words, shop, folder, path)

        yield BadFile(kind, f"{name}: {what}", make, name)


def parts(
    kind: str,
    of: str,
    name: str,
    damages: Mapping[str, d.Damage],
    words: tuple[str, ...],
    named: str = "",
    forged: bool = False,
) -> Iterator[BadFile]:
    """A file in a folder with each of these damages.

    Args:
        of: what the folder is a copy of.
        words: as for `files`; {folder} is the copy.
        named: what the message must name, if it is not the file.
        forged: the checkpoint's manifest is written anew, as somebody would who made the file.
    """
    for what, damage in damages.items():

        def make(shop: Workshop, folder: Path, what: str = what, damage: d.Damage = damage) -> list[str]:
            copy = folder / of
            shop.copy(of, copy)
            damage(copy / name, random.Random(f"{name} {what}"))
            if forged:
                forge(next((copy / "checkpoints").iterdir()))
            return _in_words(words, shop, copy, copy / name)

        yield BadFile(
            kind, f"{name}: {what}" + (", with a manifest for it" if forged else ""), make, named or Path(name).name
        )


def forge(checkpoint: Path) -> None:
    """Write the manifest of what is there."""
    there = {str(p.relative_to(checkpoint)): p for p in checkpoint.rglob("*") if p.is_file() and p.name != MANIFEST}
    entries = {name: {"bytes": p.stat().st_size, "sha256": sha256(p)} for name, p in there.items()}
    (checkpoint / MANIFEST).write_text(json.dumps(entries))


def _lines(*items: Any) -> d.Damage:
    return lambda path, rng: rows(path, list(items))


def _values(whole: Mapping[str, Any], changes: Mapping[str, tuple[Any, ...]]) -> dict[str, d.Damage]:
    """A file of one row in which a column has each of these values."""
    found = {}
    for column, values in changes.items():
        for value in values:
            row = {name: held for name, held in whole.items() if name != column} | (
                {} if value is d.GONE else {column: value}
            )
            found[f"{column} {'gone' if value is d.GONE else repr(value)[:40]}"] = _lines(row)
    return found


# Data.

PROBLEM = {"question": "1+1=?", "answer": "2"}
GOOD_ROWS = "".join(json.dumps({"question": f"{a}+{a}=?", "answer": str(2 * a)}) + "\n" for a in range(10, 30))
GOOD_CSV = "question,answer\n" + "".join(f"{a}+{a}=?,{2 * a}\n" for a in range(10, 30))
PROMPTS = ("{train}", "--prompt_dataset", "{file}")
HALF = "\ud83d"


def data() -> Iterator[BadFile]:
    """Problems, pairs, conversations, responses to score, prompts by an address."""
    json_damage = {name: how for name, how in d.JSON.items() if name != "a list"}
    yield from files("data", "d.jsonl", {**d.ANY, **d.TEXT, **json_damage}, PROMPTS, GOOD_ROWS)
    wrong = {
        "question": (d.GONE, None, 3, [], {}, True, HALF, ["a"]),
        "answer": (d.GONE, None, [], {}, True, HALF, "", "   ", float("nan")),
    }
    yield from files("data", "values.jsonl", _values(PROBLEM, wrong), PROMPTS)
    listed = {
        "cut": d.new_text(json.dumps([PROBLEM])[:-3]),
        "rows that are lists": d.new_text("[[1, 2]]"),
        "rows that are null": d.new_text("[null]"),
        "deep": d.JSON["deep"],
        "two lists": d.new_text(json.dumps([PROBLEM]) * 2),
        "empty": d.new_text("[]"),
    }
    yield from files("data", "d.json", listed, PROMPTS)
    many = ",".join(f"c{i}" for i in range(200_000))
    tables = {
        "a column twice": d.new_text("question,answer,answer\na,1,2\n"),
        "a ragged row": d.new_text("question,answer\na,1\nb,2,3\n"),
        "an open quote": d.new_text('question,answer\n"a,1\nb,2\n'),
        "the header alone": d.new_text("question,answer\n"),
        "no header": d.new_text("1+1,2\n2+2,4\n"),
        "semicolons": d.new_text("question;answer\na;1\n"),
        "200,000 columns": d.new_text(f"{many}\n{many}\n"),
        "200,000 columns, twice": d.new_text(f"{many},{many}\n"),
        "a cell of 2 MB": d.new_text(f'question,answer\n"{"a" * 2_000_000}",1\n'),
        "a lone return": d.new_text("question,answer\ra,1\rb,2,3\r"),
        **d.TEXT,
        **{
            name: how for name, how in d.ANY.items() if name in ("zeros", "noise", "a web page", "a named pipe", "gone")
        },
    }
    yield from files("data", "d.csv", tables, PROMPTS, GOOD_CSV)
    for name in ("d.txt", "d.tsv", "d.xlsx", "d"):
        yield from files("data", name, {"a name that says nothing": d.new_text(GOOD_ROWS)}, PROMPTS)
    address = ("{train}", "--prompt_csv_url", "{file}")
    by_address = {
        name: tables[name] for name in ("a column twice", "the header alone", "no header", "UTF-16", "noise", "gone")
    }
    yield from files("data", "p.csv", by_address, address, "prompt\n1+1\n")
    yield from _supervised_data()
    yield from _scored_data()


def _supervised_data() -> Iterator[BadFile]:
    words = (
        "--pretrain",
        "{model}",
        "--conversation_template_config",
        "tiny",
        "--max_steps",
        "1",
        "--train_batch_size",
        "1",
    )
    turns = {
        "messages": (
            None, 3, "text", [], [[]], ["text"], [None], [{"role": "user"}], [{"role": "user", "content": None}], [{"role": 3, "content": "a"}],
            [{"role": "nobody", "content": "a"}], [{"role": "user", "content": "a"}], [{"from": "human", "value": 3}], [{"role": "assistant", "content": HALF}],
        )
    }  # fmt: skip
    yield from files("data", "turns.jsonl", _values({}, turns), ("sft", *words, "--dataset", "{file}"))
    answers = {"response": (d.GONE, None, 3, [], HALF), "prompt": (None, 3, [3], HALF)}
    yield from files(
        "data",
        "texts.jsonl",
        _values({"prompt": "a", "response": "b"}, answers),
        ("sft", *words, "--dataset", "{file}"),
    )
    pair = {"prompt": "1+1=", "chosen": "2", "rejected": "3"}
    sides = {"chosen": (d.GONE, None, 3, [], "3"), "rejected": (d.GONE, {}, HALF), "margin": ("much", float("nan"))}
    yield from files(
        "data", "pairs.jsonl", _values(pair, sides), ("reward-model", *words, "--preference_dataset", "{file}")
    )


def _scored_data() -> Iterator[BadFile]:
    words = ("score", "{file}", "--reward", "gsm8k_reward_fn")
    good = json.dumps({"response": "<answer>2</answer>", "gold": "2"}) + "\n"
    few = ("empty", "zeros", "noise", "a web page", "a named pipe", "gone", "a folder")
    some = {name: d.ANY[name] for name in few} | {name: d.JSON[name] for name in ("cut", "deep", "null")}
    yield from files("data", "answers.jsonl", some | {"UTF-16": d.TEXT["UTF-16"]}, words, good)
    yield from files(
        "data", "answers.parquet", {name: d.ANY[name] for name in few}, words, b"PAR1" + bytes(60) + b"PAR1"
    )
    columns = {"response": (d.GONE, None, 3, [], {}), "gold": (d.GONE, [], {}, True)}
    yield from files("data", "columns.jsonl", _values({"response": "a", "gold": "2"}, columns), words)
    yield from files(
        "data",
        "problems.jsonl",
        _values(PROBLEM, {"question": (d.GONE, 3), "answer": (d.GONE, [])}),
        ("eval", "{model}", "--dataset", "{file}"),
    )


# Templates.

JINJA = {
    "an open block": "{% for message in messages %}",
    "an unknown filter": "{{ messages | nothing }}",
    "an error": "{{ messages[99].content.a.b }}",
    "it refuses": "{{ raise_exception('never') }}",
    "it divides by zero": "{{ 1 // 0 }}",
    "a way out of the sandbox": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "a loop without end": "{% for i in range(10 ** 12) %}a{% endfor %}",
    "a macro that calls itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "a text of 10^12": "{{ 'a' * 10 ** 12 }}",
    "nested too deeply": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "nothing of the messages": "hello",
    "a file": "{% include '/etc/passwd' %}",
}


def templates() -> Iterator[BadFile]:
    """Conversation templates."""
    from rlvr.prompting.template import template_dir

    whole = (template_dir() / "tiny.json").read_text()
    words = ("template", "check", "{file}", "--tokenizer", "{model}")
    train = ("{train}", "--conversation_template_config", "{file}")
    yield from files("template", "t.json", {**d.ANY, **d.TEXT, **d.JSON}, train, whole)
    tree = json.loads(whole)
    wrong = {
        "chat_template": (3, [], {}, "", True, HALF), "system_message": (3, [], {}), "stop_ids": ("a", 3, {}, [[]], [None], [""], [0.5], [True], [-1], [10**9], ["no such"]),
        "stop_strings": (3, "a", [""], [3], {}), "end_of_assistant": (3, "", []), "description": (3,), "response_format_tags": (3, [], "a"),
    }  # fmt: skip
    for key, values in wrong.items():
        damages = {f"{key} {value!r}": d.with_value((key,), value) for value in values}
        if key in ("chat_template", "stop_ids"):
            damages[f"{key} gone"] = d.with_value((key,), d.GONE)
        yield from files("template", "t.json", damages, train, whole)
    tags = {
        f"{name}.{key} {value!r}": d.with_value(("response_format_tags", name, key), value)
        for name in list(tree["response_format_tags"])[:2]
        for key, values in {"text": (3, None, "", []), "num_occur": (-1, "a", 0.5, None, True)}.items()
        for value in values
    }
    yield from files("template", "t.json", tags, train, whole)
    programs = {f"jinja, {name}": d.with_value(("chat_template",), text) for name, text in JINJA.items()}
    yield from files("template", "t.json", programs, words, whole)


# Settings.


def configs(per_section: int = 2) -> Iterator[BadFile]:
    """Files for `--config`, and of studies."""
    whole = "train:\n  num_episodes: 1\n"
    words = ("{train}", "--config", "{file}")
    yield from files("config", "c.yaml", {**d.ANY, **d.TEXT, **d.YAML}, words, whole)
    rng = random.Random("settings")
    for section in catalog(Config):
        for flag in rng.sample(list(section.flags), min(per_section, len(section.flags))):
            for value in rng.sample([{"a": 1}, [[]], {"b": None}], 2):
                title = f"{section.name}.{flag.name} {value!r}"
                text = json.dumps({section.name: {flag.name: value}})
                yield from files("config", "c.yaml", {title: d.new_text(text)}, words)
        for value in rng.sample(["text", 3, ["a"]], 1):
            yield from files(
                "config", "c.yaml", {f"{section.name} {value!r}": d.new_text(json.dumps({section.name: value}))}, words
            )
    keys = {
        "an unknown section": "trian: {lr: 1}\n",
        "an unknown setting": "train: {lrr: 1}\n",
        "a number as a key": "3: {lr: 1}\n",
        "a list as a key": "? [a, b]\n: 1\n",
        "null as a key": "train: {null: 1}\n",
        "a date": "train: {lr: 2024-01-01}\n",
        "a merge of nothing": "train:\n  <<: 3\n",
    }
    yield from files("config", "c.yaml", {name: d.new_text(text) for name, text in keys.items()}, words)
    numbers = {
        "lr": "train: {lr: .nan}",
        "kl_coef": "algo: {kl_coef: .inf}",
        "num_episodes": "train: {num_episodes: 1" + "0" * 400 + "}",
    }
    for name, text in numbers.items():
        yield BadFile(
            "config",
            f"c.yaml: a number for {name}",
            next(files("config", "c.yaml", {name: d.new_text(text)}, words)).make,
            f"--{name}",
        )


def studies() -> Iterator[BadFile]:
    """Plans of `rlvr study`."""
    words = ("study", "{file}", "--report_only")
    whole = "seeds: [0]\nsettings:\n  reward_functions: [gsm8k_reward_fn]\ngrid:\n  lr: [1.0e-5]\n"
    yield from files("study", "s.yaml", {**d.ANY, **d.TEXT, **d.YAML}, words, whole)
    wrong: dict[str, tuple[Any, ...]] = {
        "out": (3, [], {}), "seeds": (3, "a", [], ["a"], [0.5], [0, 0], [[]]), "settings": (3, [], {"no_such": 1}, {"lr": "fast"}, {"seed": 1}, {"lr": [[]]}),
        "grid": (3, [], {"no_such": [1]}, {"lr": 3}, {"lr": []}, {"lr": {"a": 3}}, {"lr": ["fast"]}, {"lr": [1e-5, 1e-5]}, {"data": {"a": {"no_such": 1}}}),
        "metric": (3, []), "targets": (3, ["a"]), "baseline": (3, {"no_such": "a"}, {"lr": "a"}), "across": (3, ["no_such"]), "also": (3, {"a": 1}), "no_such": (1,),
    }  # fmt: skip
    for key, values in wrong.items():
        damages = {f"{key} {value!r}": d.with_value((key,), value, as_yaml=True) for value in values}
        yield from files("study", "s.yaml", damages, words, whole)


# Models.


def models() -> Iterator[BadFile]:
    """Folders that `save_pretrained` wrote."""
    words = ("eval", "{folder}", "--dataset", "builtin", "--max_samples", "1", "--max_new_tokens", "2", "--conversation_template_config", "tiny", "--num_threads", "1")  # fmt: skip
    few = ("empty", "zeros", "noise", "a web page", "a pointer of git-lfs", "a folder", "a named pipe", "gone")
    some = {name: d.ANY[name] for name in few}
    texts = {**some, **d.TEXT, **d.JSON}
    yield from parts("model", "model", "config.json", texts, words, "model")
    yield from parts("model", "model", "tokenizer.json", texts, words, "model")
    links = {name: d.ANY[name] for name in ("a dangling link", "a link to itself")}
    yield from parts(
        "model", "model", "model.safetensors", {**some, **links, **d.TENSORS, **d.NAMES, "NaN": d.NAN}, words, "model"
    )
    wrong: dict[str, tuple[Any, ...]] = {
        "model_type": (d.GONE, None, 3, "no_such", []), "hidden_size": (-1, 0, "a", None, 17, 10**12), "num_hidden_layers": (-1, "a", None, 10**9, 10**30, 0.5),
        "num_attention_heads": (0, 3, "a", 10**9), "vocab_size": (-1, 0, 1, "a", 10**12), "intermediate_size": (-1, "a", 10**12), "hidden_act": ("no_such", 3),
        "rms_norm_eps": ("a",), "max_position_embeddings": ("a",), "dtype": ("no_such",), "auto_map": (3,), "num_key_value_heads": (0, -1, 10**9), "quantization_config": (3,),
    }  # fmt: skip
    for key, values in wrong.items():
        damages = {f"{key} {'gone' if v is d.GONE else repr(v)}": d.with_value((key,), v) for v in values}
        yield from parts("model", "model", "config.json", damages, words, "model")
    yield from parts(
        "model",
        "model",
        "tokenizer_config.json",
        {name: texts[name] for name in ("noise", "cut", "deep", "a number")},
        words,
        "model",
    )
    odd = {
        f"{key} {value!r}": d.with_value((key,), value)
        for key in ("model", "added_tokens", "version")
        for value in (3, {}, None)
    }
    yield from parts("model", "model", "tokenizer.json", odd, words, "model")


# What a run writes.


def checkpoints() -> Iterator[BadFile]:
    """The only checkpoint of a run that is to go on."""
    words = ("{train}", "--num_episodes", "2", "--save_interval", "1", "--journal", "2", "--eval_samples", "2", "--save_path", "{folder}", "--resume")  # fmt: skip
    at = "checkpoints/step-000001/"
    names = (
        "actor/modeling/model.safetensors", "actor/modeling/config.json", "actor/training.safetensors", "critic/modeling/model.safetensors",
        "critic/modeling/value_head.safetensors", "critic/training.safetensors", "rank-0.safetensors", "state.json",
    )  # fmt: skip
    for name in names:
        yield from parts("checkpoint", "run", at + name, d.CHANGED, words)
    yield from parts("checkpoint", "run", at + MANIFEST, {**d.ANY, **d.TEXT, **d.JSON}, words)
    entries = {
        f"{value!r} for an entry": d.with_value(("state.json",), value) for value in (None, 3, [], {}, {"bytes": "a"})
    }
    yield from parts("checkpoint", "run", at + MANIFEST, entries, words, "step-000001")
    # A stranger's, whose digests are right.
    for name in (
        "actor/modeling/model.safetensors",
        "actor/training.safetensors",
        "critic/modeling/value_head.safetensors",
        "rank-0.safetensors",
    ):
        yield from parts(
            "checkpoint",
            "run",
            at + name,
            {**d.TENSORS, **d.NAMES, "empty": d.ANY["empty"], "noise": d.ANY["noise"]},
            words,
            "step-000001",
            True,
        )
    yield from parts("checkpoint", "run", at + "actor/modeling/model.safetensors", {"NaN": d.NAN}, words, forged=True)
    yield from parts(
        "checkpoint",
        "run",
        at + "state.json",
        {**d.JSON, "noise": d.ANY["noise"], "zeros": d.ANY["zeros"]},
        words,
        "step-000001",
        True,
    )


def state_values(shop: Workshop) -> Iterator[BadFile]:
    """A stranger's `state.json` with odd values."""
    words = ("{train}", "--num_episodes", "2", "--save_interval", "1", "--journal", "2", "--eval_samples", "2", "--save_path", "{folder}", "--resume")  # fmt: skip
    at = "checkpoints/step-000001/state.json"
    tree = json.loads((shop.whole("run") / at).read_text())
    for way in (*((name,) for name in tree if name != "state"), *d.paths_in({"state": tree["state"]})):
        damages = {f"{'.'.join(map(str, way))} gone": d.with_value(way, d.GONE)}
        if way[:2] == ("state", "progress") and len(way) == 3:
            damages[f"{way[-1]} an object"] = d.with_value(way, {"odd": []})
        named = "the saved position" if way[:2] == ("state", "loaders") and len(way) == 4 else "step-000001"
        yield from parts("checkpoint", "run", at, damages, words, named, True)


def runs() -> Iterator[BadFile]:
    """Folders of runs and evaluations."""
    report, replay, chat = ("report", "{folder}"), ("replay", "{folder}", "--step", "1"), ("chat", "{folder}")
    gone = {name: d.ANY[name] for name in ("gone", "a folder", "a dangling link", "a named pipe")}
    yield from parts("run folder", "run", "metrics.jsonl", gone, report, "run")
    yield from parts("run folder", "run", "config.yaml", {**d.ANY, **d.TEXT, **d.YAML}, replay, "config.yaml")
    yield from parts(
        "run folder",
        "run",
        "config.yaml",
        {"an unknown section": d.new_text("trian: {lr: 1}"), "a section of text": d.new_text("train: fast")},
        replay,
        "config.yaml",
    )
    yield from parts("run folder", "run", "actor/modeling/config.json", gone, chat, "run")
    compare = ("compare", "{folder}", "{folder}")
    broken = {**d.ANY, **d.TEXT, **d.JSON}
    yield from parts("run folder", "evaluation", "settings.json", broken, compare, "evaluation")
    yield from parts(
        "run folder",
        "evaluation",
        "responses.jsonl",
        {n: how for n, how in broken.items() if n != "cut"},
        compare,
        "evaluation",
    )
    wrong: dict[str, tuple[Any, ...]] = {
        "correct": (d.GONE, None, "a", []),
        "problem": (d.GONE, [], {}),
        "dataset": (d.GONE, [], 3),
        "question": (d.GONE,),
    }
    for key, values in wrong.items():
        damages = {f"{key} {'gone' if v is d.GONE else repr(v)}": _in_each_line(key, v) for v in values}
        yield from parts("run folder", "evaluation", "responses.jsonl", damages, compare, "evaluation")


def _in_each_line(key: str, value: Any) -> d.Damage:
    def damage(path: Path, rng: random.Random) -> None:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            line.pop(key, None)
            if value is not d.GONE:
                line[key] = value
        rows(path, lines)

    return damage


def journals() -> Iterator[BadFile]:
    """What `rlvr replay` reads."""
    words, otherwise = (
        ("replay", "{folder}", "--step", "1"),
        ("replay", "{folder}", "--step", "1", "--rewards", "gsm8k_reward_fn"),
    )
    at = "journal/step-000001/"
    yield from parts("journal", "run", at + "step.json", {**d.ANY, **d.TEXT, **d.JSON}, words, "journal")
    wrong: dict[str, tuple[Any, ...]] = {
        "step": (d.GONE,), "processes": (d.GONE, "a", None, 0, -1), "replicas": (d.GONE, "a"), "kl_coef": ("a", None, []), "before": (d.GONE, None, 3, [], "a"),
        "after": (d.GONE, None), "made_with": (d.GONE, 3, "a"), "no_such": (1,),
    }  # fmt: skip
    for key, values in wrong.items():
        damages = {f"{key} {'gone' if v is d.GONE else repr(v)}": d.with_value((key,), v) for v in values}
        yield from parts("journal", "run", at + "step.json", damages, words, "step")
    tensors = {**d.ANY, **d.TENSORS, **d.NAMES}
    yield from parts("journal", "run", at + "experience-0.safetensors", tensors, words)
    yield from parts(
        "journal",
        "run",
        at + "samples-0-0.json.gz",
        {
            **d.ANY,
            "JSON": d.new_text("[]"),
            "rows": d.new_text(_gz([3])),
            "row": d.new_text(_gz([{}])),
            "object": d.new_text(_gz({})),
        },
        otherwise,
    )


def _gz(value: Any) -> bytes:
    import gzip

    return gzip.compress(json.dumps(value).encode())


# Plugins.

GOOD_PLUGIN = "from rewards import reward_fn\n\n\n@reward_fn('fine')\ndef fine(response):\n    return 1.0\n"
SOURCES = {
    "a syntax error": "def fine(:\n",
    "tabs and spaces": "if True:\n\tx = 1\n        y = 2\n",
    "another language": "print 'hello'\n",
    "a module that there is none": "import no_such_module\n" + GOOD_PLUGIN,
    "an import of itself": "from rlvr_plugin import fine\n",
    "an error": "1 / 0\n" + GOOD_PLUGIN,
    "an error without words": "raise ValueError\n",
    "an error with half a character": "raise ValueError('\\ud83d')\n",
    "an error that steers the terminal": "raise ValueError('\\x1b[31m\\x07')\n",
    "an error whose text can't be made": "class E(Exception):\n    def __str__(self): raise E\nraise E\n",
    "it exits": "import sys\nsys.exit(0)\n",
    "it exits with words": "raise SystemExit('done')\n",
    "it raises what is no Exception": "class Odd(BaseException): pass\nraise Odd('no')\n",
    "it ends a generator": "raise GeneratorExit\n",
    "it calls itself": "def f(): f()\nf()\n",
    "an assertion": "assert False, 'never'\n",
    "nested too deeply": "x = " + "(" * 5000 + ")" * 5000 + "\n",
    "a number of 5,000 digits": "x = " + "9" * 5000 + "\n",
    "nothing": "x = 1\n",
    "a function that is none": "fine = 3\n",
    "a class": "class fine:\n    def __init__(self, a, b): pass\n",
    "a coroutine": "async def fine(response):\n    return 1.0\n",
    "a generator": "def fine(response):\n    yield 1.0\n",
    "an argument that nothing supplies": "def fine(response, no_such):\n    return 1.0\n",
    "it returns text": "def fine(response):\n    return 'high'\n",
    "it returns NaN": "def fine(response):\n    return float('nan')\n",
    "it returns a list": "def fine(response):\n    return [1.0]\n",
    "it returns a huge number": "def fine(response):\n    return 10 ** 400\n",
    "it returns NaN as a component": "def fine(response):\n    return {'a': float('nan')}\n",
    "it returns a set": "def fine(response):\n    return {1.0}\n",
    "too few scores": "def fine(responses):\n    return [1.0] * (len(responses) + 1)\n",
    "a name that is taken": "from rewards import reward_fn\n\n\n@reward_fn('gsm8k_reward_fn')\ndef fine(response):\n    return 1.0\n",
}


CALLED = (
    "a class", "a coroutine", "a generator", "an argument that nothing supplies", "it returns text", "it returns NaN", "it returns a list",
    "it returns a huge number", "it returns NaN as a component", "it returns a set", "too few scores",
)  # fmt: skip
"""These can be imported; the message names the function."""


def plugins() -> Iterator[BadFile]:
    """Reward functions in a file."""
    few = (
        "zeros",
        "noise",
        "gzipped",
        "a pickle",
        "a web page",
        "a folder",
        "a named pipe",
        "gone",
        "a dangling link",
        "a link to itself",
    )
    words = ("score", "{folder}/answers.jsonl", "--reward", "{file}:fine")
    sources = {name: d.new_text(text) for name, text in SOURCES.items()}
    damages = (
        {name: d.ANY[name] for name in few} | {"not UTF-8": d.TEXT["not UTF-8"], "UTF-16": d.TEXT["UTF-16"]} | sources
    )
    for bad in files("plugin", "plugin.py", damages, words, GOOD_PLUGIN):
        yield BadFile(
            bad.kind,
            bad.title,
            _with_answers(bad.make),
            "'fine'" if bad.title.partition(": ")[2] in CALLED else "plugin.py",
        )
    registered = {
        name: sources[name]
        for name in ("a syntax error", "an error", "it exits", "nothing", "a module that there is none")
    }
    yield from files("plugin", "registers.py", registered, ("{train}", "--reward_plugins", "{file}"), GOOD_PLUGIN)


def _with_answers(make: Callable[[Workshop, Path], list[str]]) -> Callable[[Workshop, Path], list[str]]:
    def both(shop: Workshop, folder: Path) -> list[str]:
        rows(folder / "answers.jsonl", [{"response": "a"}, {"response": "b"}])
        return make(shop, folder)

    return both


def all_of_them(shop: Workshop) -> list[BadFile]:
    """Every bad file."""
    simple = (data, templates, configs, studies, models, checkpoints, runs, journals, plugins)
    return [bad for kind in simple for bad in kind()] + list(state_values(shop))


def draw(every: list[BadFile], count: int, seed: int) -> list[BadFile]:
    """So many of them, in their order, from each kind in proportion to what it has and at least one; 0 is all."""
    kept = []
    for kind in dict.fromkeys(bad.kind for bad in every):
        own = [bad for bad in every if bad.kind == kind]
        share = max(1, round(count * len(own) / len(every))) if count else len(own)
        places = random.Random(f"{seed} {kind}").sample(range(len(own)), min(share, len(own)))
        kept += [own[place] for place in sorted(places)]
    return kept
