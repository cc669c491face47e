"""Environments: what is paid for scores, against slow counts."""

import json
import random

import pytest
from trainer_harness import LetterTokenizer, loader, make_trainer, share_of_f

from rewards import Outcome, Sample, Score
from rlvr.config.reward_options import parse_env_config, parse_objectives
from rlvr.errors import UserError
from rlvr.scorers.environments import MultiObjective, PreferenceComparison, win_rates
from rlvr.scorers.rules import RLVRRewardModel, metrics_of


def length(response: str) -> float:
    return float(len(response))


def parts(response: str) -> dict[str, float]:
    return {"a": float(response.count("a")), "b": float(response.count("b"))}


def fails_on_x(response: str) -> Score:
    if "x" in response:
        return Score(None, Outcome("error"))
    return Score(1.0, None, {"part": 5.0})


def samples(*responses: str, prompt: str = "p") -> list[Sample]:
    return [Sample(response, None, prompt=prompt) for response in responses]


def slow_rates(values, groups, margin):
    """Every ordered pair, counted one by one."""
    out = []
    for i, value in enumerate(values):
        wins = ties = games = 0
        for j, other in enumerate(values):
            if i == j or groups[i] != groups[j] or value is None or other is None:
                continue
            games += 1
            if value - other > margin:
                wins += 1
            elif other - value <= margin:
                ties += 1
        out.append(((wins + 0.5 * ties) / games, ties / games) if games else None)
    return out


@pytest.mark.parametrize("margin", [0.0, 1.0, 2.5])
def test_win_rates_equal_the_count_over_all_pairs(margin) -> None:
    rng = random.Random(0)
    for _ in range(200):
        count = rng.randrange(1, 12)
        values = [None if rng.random() < 0.15 else float(rng.randrange(6)) for _ in range(count)]
        groups = [rng.choice("abc") for _ in range(count)]
        assert win_rates(values, groups, margin) == slow_rates(values, groups, margin)


def test_the_win_rate_is_paid_and_what_was_compared_stays_in_the_metrics() -> None:
    environment = PreferenceComparison(RLVRRewardModel([length]))
    results = environment.score([*samples("aaa", "a", "aa", "aa"), *samples("a", "aa", prompt="q")])
    assert [r.total for r in results] == [1.0, 0.0, 0.5, 0.5, 0.0, 1.0]
    metrics = metrics_of(results[2])
    assert metrics["reward/length"] == 2.0
    assert metrics["reward/win_rate"] == 0.5 and metrics["reward/win_rate/ties"] == pytest.approx(1 / 3)


def test_a_judge_among_several_scores_and_a_margin() -> None:
    rules = RLVRRewardModel([length, parts])
    given = samples("ab", "b", "aab")
    assert [r.total for r in PreferenceComparison(rules, judge="length").score(given)] == [0.5, 0.0, 1.0]
    assert [r.total for r in PreferenceComparison(rules, judge="a").score(given)] == [0.5, 0.0, 1.0]
    assert [r.total for r in PreferenceComparison(rules, judge="parts/b").score(given)] == [0.5, 0.5, 0.5]
    assert [r.total for r in PreferenceComparison(rules, judge="a", tie_margin=1).score(given)] == [0.5, 0.25, 0.75]


def test_a_response_whose_function_failed_is_compared_with_none() -> None:
    results = PreferenceComparison(RLVRRewardModel([length, fails_on_x])).score(samples("aa", "xxx", "a"))
    assert [r.total for r in results] == [1.0, None, 0.0]
    alone = PreferenceComparison(RLVRRewardModel([fails_on_x])).score(samples("a", "x"))
    assert [r.total for r in alone] == [None, None]


def test_objectives_by_name_of_function_and_component() -> None:
    environment = MultiObjective(RLVRRewardModel([length, parts]), {"length": 2.0, "parts/a": 10.0, "b": 100.0})
    results = environment.score(samples("ab", "b", ""))
    assert [r.total for r in results] == [4 + 10 + 100, 2 + 100, 0]
    assert (
        metrics_of(results[0]).items() >= {"reward/length": 2.0, "reward/parts/a": 1.0, "reward/parts/b": 1.0}.items()
    )


def test_a_function_that_is_no_objective_is_a_mere_metric() -> None:
    environment = MultiObjective(RLVRRewardModel([length, parts]), {"a": 1.0})
    assert [r.total for r in environment.score(samples("ab", "bb"))] == [1.0, 0.0]


def test_objectives_are_normalised_apart_where_that_is_asked_for() -> None:
    environment = MultiObjective(RLVRRewardModel([parts]), {"a": 1.0, "b": 1.0}, "normalise_then_sum")
    totals = [r.total for r in environment.score(samples("a" * 8, "b"))]
    assert totals == pytest.approx([0.0, 0.0], abs=1e-3)  # one best at each


def test_failures_drop_the_response_and_say_nothing_of_names() -> None:
    environment = MultiObjective(RLVRRewardModel([length, fails_on_x]), {"length": 1.0, "part": 1.0})
    assert [r.total for r in environment.score(samples("x"))] == [None]  # nobody can know `part` yet
    assert [r.total for r in environment.score(samples("a", "x"))] == [6.0, None]
    assert [r.total for r in environment.score(samples("xx"))] == [None]


def test_names_that_are_not_there_or_not_clear() -> None:
    with pytest.raises(UserError, match=r"no score is called 'lenght'.*length, parts, parts/a.*Did you mean 'length'"):
        MultiObjective(RLVRRewardModel([length, parts]), {"lenght": 1.0}).score(samples("a"))

    def others(response: str) -> dict[str, float]:
        return {"a": 1.0}

    with pytest.raises(UserError, match="several scores are called 'a'.*others/a.*parts/a"):
        PreferenceComparison(RLVRRewardModel([others, parts]), judge="a").score(samples("a"))


def test_one_around_the_other() -> None:
    """Compared by the weighted total of the objectives."""
    inner = MultiObjective(RLVRRewardModel([length, parts]), {"length": -1.0, "a": 3.0})
    results = PreferenceComparison(inner).score(samples("a", "aab", "bbb"))
    assert [r.total for r in results] == [0.5, 1.0, 0.0]


def test_responses_may_come_bit_by_bit_and_the_wrapped_scorer_is_closed() -> None:
    rules = RLVRRewardModel([length], LetterTokenizer())
    closed = []
    rules.close = lambda: closed.append(True)
    environment = PreferenceComparison(MultiObjective(rules, {"length": 1.0}))
    scoring = environment.begin()
    scoring.add(samples("a"))
    scoring.add(samples("aa"))
    scoring.complete()
    assert [r.total for r in scoring.result()] == [0.0, 1.0]
    assert environment.names == ["length"] and environment.tokenizer is rules.tokenizer
    environment.close()
    assert closed == [True]


def test_preferences_raise_what_is_compared(process, tmp_path) -> None:
    scorer = PreferenceComparison(RLVRRewardModel([share_of_f], LetterTokenizer()))
    trainer = make_trainer(tmp_path, reward_model=scorer, num_generations=4, train_batch_size=32, steps=36)
    trainer.fit(12, 1, 3, loader(per_step=16))
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    early, late = (sum(r["reward/share_of_f"] for r in part) / 3 for part in (rows[:3], rows[-3:]))
    assert late > early + 0.1
    assert all(r["reward/win_rate"] == pytest.approx(0.5) for r in rows)


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("preference_comparison", "{oops", "not valid JSON"),
        ("preference_comparison", "[1]", "JSON object"),
        (
            "preference_comparison",
            '{"tie_marign": 1}',
            "no setting 'tie_marign'.*judge, tie_margin.*Did you mean 'tie_margin'",
        ),
        ("preference_comparison", '{"tie_margin": -1}', "at least 0"),
        ("preference_comparison", '{"tie_margin": NaN}', "at least 0"),
        ("preference_comparison", '{"tie_margin": true}', "at least 0"),
        ("preference_comparison", '{"judge": 3}', "name of a score"),
        ("text_generation", '{"judge": "x"}', "no setting 'judge'; its settings: none"),
        ("multi_objective", '{"weights": {}}', "no setting 'weights'"),
        ("preference_comparison", "[" * 100_000, "not valid JSON|nested too deeply"),
    ],
)
def test_environment_settings_that_can_not_be_used(kind, text, said) -> None:
    with pytest.raises(UserError, match=said):
        parse_env_config(kind, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{'a': 1}", "not valid JSON"),
        ("1.0", "JSON object"),
        ('{"a": "much"}', "weight of 'a'"),
        ('{"a": Infinity}', "finite"),
        ('{"a": true}', "weight of 'a'"),
        ("{}", "nothing is paid"),
        ('{"a": 0}', "nothing is paid"),
    ],
)
def test_objectives_that_can_not_be_used(text, said) -> None:
    with pytest.raises(UserError, match=said):
        parse_objectives(text)


def test_what_can_be_used() -> None:
    assert parse_objectives(None) == {} and parse_env_config("text_generation", None) == {}
    assert parse_objectives('{"correctness": 1, "formatting": 0.1}') == {"correctness": 1.0, "formatting": 0.1}
    assert parse_env_config("preference_comparison", '{"judge": "reward_model", "tie_margin": 0}') == {
        "judge": "reward_model",
        "tie_margin": 0,
    }


def test_formatting_is_a_name_of_the_format_reward() -> None:
    rules = RLVRRewardModel(["formatting", "format_reward_fn"])
    good, bad = rules.score(samples("<think>a</think><answer>b</answer>", "b"))
    assert good.scores["formatting"].value == good.scores["format_reward_fn"].value == 1.0 and bad.total == 0.0
