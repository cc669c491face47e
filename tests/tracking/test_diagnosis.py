"""Each sign is found where it is, not before it has lasted, and not in a healthy run."""

import math
import random
from typing import Any

import pytest

from rlvr.tracking.diagnosis import CHECKS, LOOKED_AT, History, diagnose
from rlvr.trainer.callbacks import Watch


def healthy(episode: int) -> dict[str, float]:
    share = min(0.9, 0.2 + 0.7 * episode / 40)
    return {
        "episode": 256.0 * (episode + 1),
        "objective/scores": share,
        "objective/scores_std": 0.4,
        "objective/kl": 0.5,
        "policy/approxkl_avg": 0.01,
        "policy/clipfrac_avg": 0.1,
        "policy/entropy_avg": 1.0 - 0.02 * episode,
        "critic/explained_variance": 0.02 * episode,
        "grad_norm/actor": 1.0 + 0.3 * (episode % 3),
        "grad_norm/critic": 2.0,
        "val/ratio": 1.0 + 0.02 * (episode % 3),
        "val/ratio_var": 0.01,
        "sampler/kl": 1e-4,
        "sampler/tokens_outside": 0.001,
        "sampler/responses_outside": 0.01,
        "loss/value_avg": 0.1,
        "response/length_tokens": 20.0 + 0.5 * episode,
        "response/truncated": 0.02,
        "outcome/correct": share,
        "outcome/timed_out": 0.001,
        "reward/a": share,
        "reward/b": 0.5 * share,
        "reward/a/failed": 0.0,
        "objective/groups_with_signal": 0.6,
    }


def run(count: int = 40, **changes: Any) -> list[dict[str, float]]:
    """Healthy rows, in which some metrics are functions of the episode. `/` is spelled `__`."""
    rows = [healthy(i) for i in range(count)]
    for name, value in changes.items():
        for i, row in enumerate(rows):
            row[name.replace("__", "/")] = value(i) if callable(value) else value
    return rows


def names(rows: list[dict[str, float]]) -> list[str]:
    return [finding.name for finding in diagnose(rows)]


def falls(i: int) -> float:
    return 0.9 - 0.008 * i


SICK: dict[str, dict[str, Any]] = {
    "constant reward": {"objective__scores_std": 0.0},
    "groups without signal": {"objective__groups_with_signal": 0.05},
    "a fails": {"reward__a__failed": 0.01},
    "broken environment": {"environment__ended_failed": 0.01},
    "grader time-outs": {"outcome__timed_out": 0.05},
    "responses are cut": {"response__truncated": 0.59},
    "hardly anything is right": {"outcome__correct": 0.004},
    "KL runaway": {"objective__kl": 500.0},
    "steps too large": {"policy__approxkl_avg": 0.05},
    "ratios are off": {"val__ratio": 3.0, "train__max_ratio": 9.0},
    "accuracy drops": {"outcome__correct": lambda i: 0.9 if i < 25 else 0.7, "objective__scores": 0.5},
    "engine and trainer disagree": {"sampler__kl": 0.03},
    "much is clipped": {"policy__clipfrac_avg": 0.5},
    "critic explains nothing": {"critic__explained_variance": 0.0, "outcome__correct": 0.4},
    "skipped steps (actor)": {"skipped_steps__actor": lambda i: 1.0 if i == 39 else 0.0},
    "gradient spike (actor)": {"grad_norm__actor": lambda i: 300.0 if i == 39 else 1.0},
    "length without accuracy": {"response__length_tokens": lambda i: 20.0 * 1.1**i, "outcome__correct": 0.4},
    "entropy collapse": {
        "policy__entropy_avg": lambda i: 1.0 if i < 20 else 0.01,
        "outcome__correct": 0.3,
    },
    "score rises, accuracy falls": {"outcome__correct": falls},
    "one component dominates": {"reward__b": 0.3},
}


def test_a_healthy_run_has_no_sign_at_any_time() -> None:
    rows = run()
    assert [names(rows[: i + 1]) for i in range(40)] == [[]] * 40
    assert diagnose([]) == []


@pytest.mark.parametrize("name", SICK)
def test_each_sign_is_found_with_evidence_and_remedy(name: str) -> None:
    rows = run(**SICK[name])
    (finding,) = [f for f in diagnose(rows) if f.name == name]
    assert names(rows) == [name]
    assert any(c.isdigit() for c in finding.evidence) and len(finding.remedy) > 10
    assert finding.metrics and all(metric in rows[-1] for metric in finding.metrics)


def test_every_check_is_tried() -> None:
    assert len(SICK) == len(CHECKS)


AT_ONCE = ("a fails", "broken environment", "skipped steps (actor)", "constant reward", "responses are cut")


@pytest.mark.parametrize("name", [n for n in SICK if n not in AT_ONCE])
def test_it_has_to_last(name: str) -> None:
    rows = run(**SICK[name])
    assert names(rows[:2]) == [] and names(rows[-1:]) == []


@pytest.mark.parametrize("name", ["constant reward", "responses are cut"])
def test_it_need_not_last_at_the_beginning_of_a_run(name: str) -> None:
    sick = run(3, **SICK[name])
    assert names(sick[:1]) == [name] and names(sick[:2]) == [name]
    well = run(3)
    assert names([*well, sick[0]]) == [] and names([well[0], sick[0]]) == []


def test_a_critic_is_told_of_after_ten_episodes_unless_the_run_fares_well_without() -> None:
    def signs(count: int, right: Any, **changes: Any) -> list[str]:
        return names(run(count, critic__explained_variance=0.01, outcome__correct=right, **changes))

    assert signs(9, 0.5) == [] and signs(10, 0.5) == ["critic explains nothing"]
    assert signs(10, 0.85) == [], "most is right"
    assert signs(10, lambda i: 0.3 + 0.02 * i) == [], "it learns"
    explained_once = {"critic__explained_variance": lambda i: 0.4 if i == 3 else 0.01}
    assert names(run(10, outcome__correct=0.5, **explained_once)) == []
    (finding,) = diagnose(run(10, critic__explained_variance=0.01, outcome__correct=0.5))
    assert all(flag in finding.remedy for flag in ("--critic_steps", "--critic_lr", "--value_pretraining_episodes"))
    assert "--preset drgrpo" in finding.remedy


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("responses", [16, 64, 256])
def test_accuracy_that_only_varies_by_chance_does_not_fall(responses: int, seed: int) -> None:
    """Half of the responses are right, of 16 of them by two dozens of percent more or less."""
    chance = random.Random(seed)
    values = [sum(chance.random() < 0.5 for _ in range(responses)) / responses for _ in range(60)]
    rows = run(60, outcome__correct=lambda i: values[i], episode=lambda i: responses * (i + 1))
    assert not any("accuracy drops" in names(rows[: i + 1]) for i in range(60))


def test_accuracy_may_fall_where_a_curriculum_makes_problems_harder() -> None:
    sick = SICK["accuracy drops"]
    assert names(run(**sick)[:28]) == ["accuracy drops"]
    assert names(run(**sick, curriculum__known=0.5)[:28]) == []


def test_nan_is_a_runaway_and_breaks_no_other_check() -> None:
    rows = run(objective__kl=math.nan, grad_norm__actor=math.nan)
    assert "KL runaway" in names(rows)
    assert names(run(grad_norm__actor=lambda i: math.nan if i == 39 else 1.0)) == ["gradient spike (actor)"]
    assert names([{}] * 40) == [] and names([{"step": 1.0}] * 3) == []


SLOWLY = {"policy__entropy_avg": lambda i: 1.0 if i < 20 else 0.01, "outcome__correct": 0.3}


@pytest.mark.parametrize("changes", [*SICK.values(), SLOWLY, {"objective__kl": math.nan, "grad_norm__actor": math.nan}])
@pytest.mark.parametrize("late", [0, 5, LOOKED_AT + 4])
def test_row_by_row_is_as_all_rows_at_once(changes, late) -> None:
    """Also where metrics begin later than the run."""
    rows = [{"outcome/correct": 0.3}] * late + run(3 * LOOKED_AT, **changes)
    history = History()
    assert [history.add(row) for row in rows] == [diagnose(rows[: i + 1]) for i in range(len(rows))]
    assert any(diagnose(rows[: i + 1]) for i in range(len(rows)))


def test_a_row_costs_the_same_however_many_came_before() -> None:
    class Counted(dict):
        looked = 0

        def get(self, *arguments):
            Counted.looked += 1
            return super().get(*arguments)

        def __contains__(self, name):
            Counted.looked += 1
            return super().__contains__(name)

    history, costs = History(), []
    for row in run(300, **SICK["entropy collapse"]):
        before = Counted.looked
        history.add(Counted(row))
        costs.append(Counted.looked - before)
    assert max(costs[100:]) == max(costs[200:]) <= 2 * max(costs[:40])


def test_the_watch_warns_now_and_then() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.said: list[tuple[int, str]] = []

        def warn(self, message: str) -> None:
            self.said.append((episode, message))

    trainer, watch = Trainer(), Watch()
    for episode, row in enumerate(run(**SICK["responses are cut"])):
        watch.on_episode_end(trainer, episode, row)  # type: ignore[arg-type]
    assert [at for at, _ in trainer.said] == [0, 10, 20, 30]
    assert "59% of responses hit the length limit: raise --max_new_tokens" in trainer.said[0][1]
