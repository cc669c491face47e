"""Finding, calling and combining reward functions, and what happens when one misbehaves."""

import pytest

from rewards import (
    Outcome,
    RewardSet,
    Sample,
    Score,
    Tags,
    UserError,
    format_reward_fn,
    gsm8k_reward_fn,
    load_plugins,
    names,
    resolve,
    reward_fn,
)  # fmt: skip
from rewards.call import score
from rewards.registry import at_place

TAGS = Tags.default()
GOOD = "<think>6*7</think><answer>42</answer>"


def sample(response=GOOD, gold="42", **more) -> Sample:
    return Sample(response=response, gold=gold, tags=TAGS, **more)


def values(function, samples, **options):
    chosen = {getattr(function, "__name__", function): options} if options else None
    return [s.value for s in score(resolve(function, options=chosen), samples)]


def test_the_built_in_functions_and_their_scores() -> None:
    assert {"gsm8k_reward_fn", "math_competition_reward_fn", "format_reward_fn"} <= set(names())
    responses = [GOOD, "<think>a</think><answer>41</answer>", "42", GOOD + "!"]
    for name in ("gsm8k_reward_fn", "math_competition_reward_fn"):
        assert values(name, [sample(r) for r in responses]) == [1.0, 0.1, 0.0, 0.9]
    assert values("format_reward_fn", [sample(r) for r in responses]) == [1.0, 1.0, 0.0, 0.0]


def test_options_change_the_scores_and_unknown_ones_are_refused() -> None:
    wrong = sample("<think>a</think><answer>41</answer>")
    assert values(gsm8k_reward_fn, [wrong], format_score=0.3) == [0.3]
    with pytest.raises(UserError, match="bonus.*format_score"):
        resolve("gsm8k_reward_fn", options={"gsm8k_reward_fn": {"bonus": 1}})


def test_a_bad_gold_is_skipped_and_said() -> None:
    result = score(resolve("gsm8k_reward_fn"), [sample(gold="")])[0]
    assert result.value is None and result.outcome.status == "bad_gold"


def test_a26_called_once_for_each_sample_with_arguments_by_name() -> None:
    calls = []

    def look(response, gold, answer, question, finished, response_ids, tags, level, prompt="", weight=2):
        calls.append((response, gold, answer, question, finished, tuple(response_ids), tags, level, weight))
        return len(calls)

    samples = [sample(question=f"q{i}", columns={"level": i}, response_ids=(i,), finished=bool(i)) for i in range(3)]
    assert values(look, samples, weight=5) == [1.0, 2.0, 3.0]
    assert calls[1] == (GOOD, "42", "42", "q1", True, (1,), TAGS, 1, 5)


def test_a26_plural_names_are_called_once_for_the_batch() -> None:
    calls = []

    def whole(responses, golds, answers, level):
        calls.append((responses, golds, answers, level))
        return [0.5] * len(responses)

    assert values(whole, [sample(columns={"level": i}) for i in range(3)]) == [0.5] * 3
    assert calls == [([GOOD] * 3, ["42"] * 3, ["42"] * 3, [0, 1, 2])]


def test_keyword_catch_all_receives_the_rest() -> None:
    def everything(response, **rest):
        return float("gold" in rest and "level" in rest)

    assert values(everything, [sample(columns={"level": 1})]) == [1.0]


def test_what_a_function_may_return() -> None:
    class Tensorish:
        def __float__(self):
            return 0.25

    for result, value in [
        (1, 1.0), (True, 1.0), (0.5, 0.5), (None, None), (Tensorish(), 0.25), ({"a": 1, "b": 0.5}, 1.5),
        ({"score": 3, "a": 1}, 3.0), (Outcome("correct"), 1.0), (Outcome("wrong"), 0.0), (Outcome("bad_gold"), None),
        (Score(0.7, None, {"part": 1.0}), 0.7),
    ]:  # fmt: skip
        assert values(lambda response, r=result: r, [sample()]) == [value]


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("1.0", "str"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        ([1.0], "list"),
        ({"a": "x"}, "str"),
        (object(), "object"),
    ],
)
def test_a26_what_it_may_not_return_is_named(result, said) -> None:
    def odd_one(response):
        return result

    with pytest.raises(UserError, match="odd_one.*") as error:
        values(odd_one, [sample()])
    assert said in str(error.value)


@pytest.mark.parametrize("result", [[1.0], [1.0] * 3, 1.0, "ab", {"a": 1}])
def test_a26_a_batch_of_the_wrong_length_is_named(result) -> None:
    def short_one(responses):
        return result

    with pytest.raises(UserError, match="short_one"):
        values(short_one, [sample(), sample()])


def test_an_argument_that_nothing_supplies_is_named() -> None:
    def wants(response, temperature_outside):
        return 0

    with pytest.raises(UserError, match="wants.*temperature_outside.*response"):
        values(wants, [sample()])


def test_a_users_ten_line_plugin_by_every_name(tmp_path, monkeypatch) -> None:
    code = '''
from rewards import grade, reward_fn


@reward_fn("brief_by_name")
def brief(response, gold, tags):
    """1 for a right answer, less a little for every character."""
    right = grade(response, gold, tags=tags).correct
    return {"right": float(right), "length": -len(response) / 1000}
'''
    path = tmp_path / "brief_plugin.py"
    path.write_text(code)
    expected = pytest.approx(1 - len(GOOD) / 1000)
    assert score(resolve(f"{path}:brief"), [sample()])[0].value == expected
    load_plugins([str(path)])
    load_plugins([str(path)])  # a second time is no second registration
    assert score(resolve("brief_by_name"), [sample()])[0].value == expected
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve(f"{path}:brief").spec == f"{path}:brief"
    (tmp_path / "brief_module.py").write_text(code.replace("brief_by_name", "brief_in_module"))
    load_plugins(["brief_module"])
    assert score(resolve("brief_module:brief"), [sample()])[0].components["right"] == 1.0


def test_an_entry_point_is_found(tmp_path, monkeypatch) -> None:
    (tmp_path / "pointed.py").write_text("def pointed(response):\n    return 0.5\n")
    info = tmp_path / "pointed-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pointed\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[rlvr.rewards]\npointed_fn = pointed:pointed\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "pointed_fn" in names() and values("pointed_fn", [sample()]) == [0.5]


def test_two_functions_of_one_name_are_refused() -> None:
    with pytest.raises(UserError, match="gsm8k_reward_fn"):
        reward_fn("gsm8k_reward_fn")(lambda response: 0)


def test_unknown_names_and_files(tmp_path) -> None:
    with pytest.raises(UserError, match="Did you mean 'gsm8k_reward_fn'"):
        resolve("gsm8k_reward")
    with pytest.raises(UserError, match="no file"):
        resolve(f"{tmp_path}/none.py:f")
    (tmp_path / "a.py").write_text("def g(response): return 1")
    with pytest.raises(UserError, match="no function 'f'.*g"):
        resolve(f"{tmp_path}/a.py:f")
    with pytest.raises(UserError, match="ModuleNotFoundError"):
        resolve("no_such_package_at_all:f")
    with pytest.raises(UserError, match="registers no reward function"):
        load_plugins([str(tmp_path / "a.py")])


def test_weights_none_and_metrics_only() -> None:
    def sometimes(response):
        return None if "41" in response else 2.0

    functions = [resolve(gsm8k_reward_fn), resolve(sometimes), resolve(format_reward_fn)]
    both = RewardSet(functions, [1.0, 0.5, 0.0])([sample(), sample("<think>a</think><answer>41</answer>")])
    assert [c.total for c in both] == [pytest.approx(2.0), pytest.approx(0.1)]
    assert both[0].scores["format_reward_fn"].value == 1.0 and both[0].outcome.status == "correct"
    assert RewardSet([resolve(sometimes)])([sample("41")])[0].total is None
    with pytest.raises(UserError, match="2 reward weights for 1"):
        RewardSet([resolve(sometimes)], [1, 2])


def test_a_game_of_an_adapter_is_named_by_its_place() -> None:
    """Nothing is said of reward functions, of which it is none."""
    with pytest.raises(
        UserError, match=r"^'reverse-text' names no place: give package.module:name or path/to/file.py:name$"
    ):
        at_place("reverse-text")
