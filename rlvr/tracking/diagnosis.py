"""Signs of a run going wrong, found in its metrics: what was seen, and what usually helps. For the live view and the report.

Each check looks at the rows so far (one for each episode, newest last) and speaks of the newest one, so that the same
checks serve a run that is going on and the history of one that has ended. A check is a function over rows that yields
`Finding`s; `CHECKS`, at the end, lists them. A missing metric (no critic, no groups) is no sign.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

Rows = Sequence[Mapping[str, float]]

PATIENCE = 3
"""Rows for which a sign must last."""
WINDOW = 10
"""Rows that trends are measured over."""
LOOKED_AT = 2 * WINDOW + 1
"""Newest rows that any check looks at."""
STARTS = ("policy/entropy_avg",)
"""Metrics of whose first value, however long ago, a check reads."""


@dataclass(frozen=True)
class Finding:
    """One sign.

    Attributes:
        name: which, the same as long as it lasts.
        evidence: what was seen, with numbers.
        remedy: what usually helps.
        metrics: the curves to look at.
    """

    name: str
    evidence: str
    remedy: str
    metrics: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.evidence}: {self.remedy}"


def diagnose(rows: Rows) -> list[Finding]:
    """The signs at the newest of the rows."""
    return [finding for check in CHECKS for finding in check(rows)] if rows else []


class History:
    """Rows as they come: what `diagnose` says of all of them so far, from those that it looks at."""

    def __init__(self) -> None:
        self._newest: deque[Mapping[str, float]] = deque(maxlen=LOOKED_AT)
        self._first: dict[str, float] = {}

    def add(self, row: Mapping[str, float]) -> list[Finding]:
        """The signs at this row, which comes after those before."""
        if len(self._newest) == LOOKED_AT:  # the oldest gives way
            self._first = {n: v for n, v in self._newest[0].items() if n in STARTS} | self._first
        self._newest.append(row)
        return diagnose([self._first, *self._newest] if self._first else [*self._newest])


def _lasts(rows: Rows, name: str, bad: Callable[[float], bool], count: int = PATIENCE) -> bool:
    """True if the metric was there and bad in each of the newest `count` rows."""
    newest = rows[-count:]
    return len(newest) == count and all(name in row and bad(row[name]) for row in newest)


def _from_the_start(rows: Rows, name: str, bad: Callable[[float], bool]) -> bool:
    """As `_lasts`; at the beginning of a run, bad in every row so far is enough: a short run must not end without a word."""
    return _lasts(rows, name, bad, min(PATIENCE, len(rows)))


def _trend(rows: Rows, name: str) -> tuple[float, float] | None:
    """Means of a metric over the earlier and the newer half of the window; None where it is missing."""
    values = [row[name] for row in rows[-WINDOW:] if name in row and math.isfinite(row[name])]
    if len(values) < WINDOW:
        return None
    return fmean(values[: WINDOW // 2]), fmean(values[WINDOW // 2 :])


def _fares_well(rows: Rows) -> bool:
    """True while ever more responses are right, and once most are."""
    trend = _trend(rows, "outcome/correct")
    return rows[-1].get("outcome/correct", 0.0) >= 0.8 or (trend is not None and trend[1] > trend[0] + 0.01)


def _constant(rows: Rows) -> Iterator[Finding]:
    score = rows[-1].get("objective/scores", 0.0)
    if score < 1 and _from_the_start(rows, "objective/scores_std", lambda s: s < 1e-6):
        yield Finding(
            "constant reward",
            f"every response gets the same reward ({score:g}), so there is nothing to learn from",
            "look at samples.jsonl; fine-tuning first (rlvr sft), easier problems, a format reward, or another template usually help",
            ("objective/scores", "objective/scores_std"),
        )


def _hardly_right(rows: Rows) -> Iterator[Finding]:
    constant = rows[-1].get("objective/scores_std", 1.0) < 1e-6  # then that is said
    if not constant and _lasts(rows, "outcome/correct", lambda share: share < 0.01):
        yield Finding(
            "hardly anything is right",
            f"{rows[-1]['outcome/correct']:.1%} of responses are right, so there is next to nothing to learn from",
            "fine-tune the model first (rlvr sft), take easier problems, or see whether the template suits it (rlvr template check)",
            ("outcome/correct", "objective/scores"),
        )


def _groups(rows: Rows) -> Iterator[Finding]:
    name = "objective/groups_with_signal"
    if _lasts(rows, name, lambda share: share < 0.1):
        yield Finding(
            "groups without signal",
            f"only {rows[-1][name]:.0%} of the groups hold both better and worse responses",
            "take problems that are neither always nor never solved, more --num_generations, or --dynamic_sampling",
            (name,),
        )


def _failing(rows: Rows) -> Iterator[Finding]:
    for name, share in rows[-1].items():
        if name.startswith("reward/") and name.endswith("/failed") and share > 0:
            function = name.removeprefix("reward/").removesuffix("/failed")
            yield Finding(
                f"{function} fails",
                f"reward function {function!r} hung, crashed or failed on {share:.1%} of responses, which were left out",
                "mend it, or give it more time or memory (--reward_timeout_s, --reward_memory_mb)",
                (name,),
            )


def _environment(rows: Rows) -> Iterator[Finding]:
    name = "environment/ended_failed"
    if rows[-1].get(name, 0.0) > 0:
        yield Finding(
            "broken environment",
            f"the environment hung, crashed or failed in {rows[-1][name]:.1%} of the episodes, which were left out",
            "mend it, or give it more time or memory (--reward_timeout_s, --reward_memory_mb)",
            (name,),
        )


def _timed_out(rows: Rows) -> Iterator[Finding]:
    if _lasts(rows, "outcome/timed_out", lambda share: share > 0.02):
        yield Finding(
            "grader time-outs",
            f"the grader gave no verdict in time on {rows[-1]['outcome/timed_out']:.1%} of responses",
            "look at their golds with `rlvr audit`: answers that our grader can't read go to a slower one",
            ("outcome/timed_out",),
        )


def _truncated(rows: Rows) -> Iterator[Finding]:
    if _from_the_start(rows, "response/truncated", lambda share: share > 0.5):
        yield Finding(
            "responses are cut",
            f"{rows[-1]['response/truncated']:.0%} of responses hit the length limit",
            "raise --max_new_tokens, or check the template's stop tokens (rlvr template check)",
            ("response/truncated", "response/length_tokens"),
        )


def _divergence(rows: Rows) -> Iterator[Finding]:
    def runs_away(row: Mapping[str, float]) -> bool:
        kl = row.get("objective/kl", 0.0)
        return not math.isfinite(kl) or kl > 100 or row.get("policy/approxkl_avg", 0.0) > 0.5

    if len(rows) >= PATIENCE and all(map(runs_away, rows[-PATIENCE:])):
        yield Finding(
            "KL runaway",
            f"the policy is running away (KL from the initial model {rows[-1].get('objective/kl', 0.0):.3g} per response, from "
            f"the sampling policy {rows[-1].get('policy/approxkl_avg', 0.0):.3g} per token)",
            "lower --lr, or raise --kl_coef",
            ("objective/kl", "policy/approxkl_avg"),
        )


def _mismatch(rows: Rows) -> Iterator[Finding]:
    def disagrees(row: Mapping[str, float]) -> bool:
        kl = row.get("sampler/kl", 0.0)
        return not kl <= 0.01 or row.get("sampler/tokens_outside", 0.0) > 0.05

    if len(rows) >= PATIENCE and all(map(disagrees, rows[-PATIENCE:])):
        yield Finding(
            "engine and trainer disagree",
            f"the engine samples with other probabilities than the trainer's ({rows[-1].get('sampler/kl', 0.0):.3g} nats a token; "
            f"{rows[-1].get('sampler/tokens_outside', 0.0):.1%} of tokens off by more than a factor of 2)",
            "leave out what is furthest off (--mismatch_correction mask), or have both compute alike (--mixed_precision fp32)",
            ("sampler/kl", "sampler/tokens_outside", "sampler/responses_outside"),
        )


def _too_far(rows: Rows) -> Iterator[Finding]:
    name = "policy/approxkl_avg"
    if _lasts(rows, name, lambda kl: kl > 0.03):
        yield Finding(
            "steps too large",
            f"the policy moves by {rows[-1][name]:.2g} nats a token in an episode's updates, ten times what it usually does",
            "lower --lr, or make fewer passes over the same responses (--num_update_steps)",
            (name, "objective/kl", "outcome/correct"),
        )


def _ratios(rows: Rows) -> Iterator[Finding]:
    name = "val/ratio"
    # Over what a policy has sampled, the mean of another's probabilities over its own is 1, whatever the other is.
    if _lasts(rows, name, lambda ratio: not abs(ratio - 1) < 0.2):
        yield Finding(
            "ratios are off",
            f"the mean ratio of new to old probability is {rows[-1][name]:.3g}, and of samples of the old policy it would be about 1",
            "check where the old logprobs come from (--old_logprobs, the engine, your own code); lower --lr if the policy jumps",
            (name, "train/max_ratio", "policy/clipfrac_avg"),
        )


def _dropping(rows: Rows) -> Iterator[Finding]:
    seen = [row for row in rows[-LOOKED_AT:] if "outcome/correct" in row]
    chosen = "curriculum/known" in rows[-1]  # then problems become harder
    if chosen or len(seen) < 2 * PATIENCE:
        return
    means = [fmean(r["outcome/correct"] for r in seen[i : i + PATIENCE]) for i in range(len(seen) - PATIENCE + 1)]
    best, now = max(means[:-PATIENCE]), means[-1]
    responses = seen[-1].get("episode", 0.0) - seen[-1 - PATIENCE].get("episode", 0.0)
    right = (best + now) / 2
    # Six standard errors, where independent responses would ask for three: those to one prompt are alike, and `best` is the best of many.
    chance = 6 * (2 * right * (1 - right) / responses) ** 0.5 if responses > 0 else math.inf
    if best - now > max(0.1, chance):
        yield Finding(
            "accuracy drops",
            f"{now:.1%} of the newest responses are right, after {best:.1%} before",
            "go back to an earlier checkpoint with a lower --lr or a higher --kl_coef; if it fell at once, something else than the "
            "policy has changed: the problems, the reward function, or the grader",
            ("outcome/correct", "policy/approxkl_avg", "objective/kl"),
        )


def _clipping(rows: Rows) -> Iterator[Finding]:
    if _lasts(rows, "policy/clipfrac_avg", lambda share: share > 0.3):
        yield Finding(
            "much is clipped",
            f"{rows[-1]['policy/clipfrac_avg']:.0%} of the tokens' ratios are clipped and teach nothing",
            "lower --lr, or make fewer passes over the same responses (--num_update_steps)",
            ("policy/clipfrac_avg", "val/ratio_var"),
        )


def _critic(rows: Rows) -> Iterator[Finding]:
    # A run that learns without a critic, or has learned, lacks nothing.
    if not _fares_well(rows) and _lasts(rows, "critic/explained_variance", lambda share: share < 0.05, WINDOW):
        mean = fmean(row["critic/explained_variance"] for row in rows[-WINDOW:])
        yield Finding(
            "critic explains nothing",
            f"the critic explains {mean:.0%} of the returns' variance over {WINDOW} episodes, so advantages are those of a baseline "
            "that is the same for all",
            "give it more steps (--critic_steps), a higher --critic_lr or a start (--value_pretraining_episodes), or do without: "
            "--preset drgrpo",
            ("critic/explained_variance", "loss/value_avg"),
        )


def _skipped(rows: Rows) -> Iterator[Finding]:
    for name, steps in rows[-1].items():
        if name.startswith("skipped_steps") and steps >= 0.5:  # a sum of the processes' parts of steps
            role = name.removeprefix("skipped_steps").strip("/") or "model"
            yield Finding(
                f"skipped steps ({role})",
                f"the {role}'s gradient was not finite in {steps:.0f} optimizer step(s), which changed nothing",
                "lower --lr, or take --mixed_precision fp32; look at the rewards and the longest samples of this episode",
                (name,),
            )


def _spikes(rows: Rows) -> Iterator[Finding]:
    for role in ("actor", "critic"):
        name = f"grad_norm/{role}"
        before = [row[name] for row in rows[-2 * WINDOW - 1 : -1] if name in row and math.isfinite(row[name])]
        now = rows[-1].get(name)
        if now is not None and len(before) >= WINDOW and not now <= 10 * median(before):
            yield Finding(
                f"gradient spike ({role})",
                f"the {role}'s gradient norm is {now:.3g}, after {median(before):.3g} in most episodes before",
                "look at this episode's samples; a lower learning rate or --grad_clip makes such steps harmless",
                (name,),
            )


def _lengthening(rows: Rows) -> Iterator[Finding]:
    length, right = _trend(rows, "response/length_tokens"), _trend(rows, "outcome/correct")
    if length and right and length[1] > 1.3 * length[0] + 4 and right[1] < right[0] + 0.01:
        yield Finding(
            "length without accuracy",
            f"responses grew from {length[0]:.0f} to {length[1]:.0f} tokens over {WINDOW} episodes, and right answers went from "
            f"{right[0]:.1%} to {right[1]:.1%}",
            "pay for brevity (soft_overlong_fn, length_penalty), or normalise the loss by a constant: --loss_reduction constant",
            ("response/length_tokens", "outcome/correct"),
        )


def _entropy(rows: Rows) -> Iterator[Finding]:
    name = "policy/entropy_avg"
    first = next((row[name] for row in rows if name in row), None)
    right = rows[-1].get("outcome/correct", 0.0)
    # A policy that is sure and right has no entropy either.
    if first and not _fares_well(rows) and _lasts(rows, name, lambda entropy: entropy < min(0.02, 0.1 * first)):
        yield Finding(
            "entropy collapse",
            f"the policy's entropy fell from {first:.3g} to {rows[-1][name]:.3g} nats a token while {right:.0%} of answers are right",
            "raise --temperature or --entropy_coef, clip higher upwards (--eps_clip_high 0.28), or lower --lr",
            (name, "outcome/correct"),
        )


def _hacking(rows: Rows) -> Iterator[Finding]:
    score, right = _trend(rows, "objective/scores"), _trend(rows, "outcome/correct")
    if score and right and score[1] > score[0] + 0.02 and right[1] < right[0] - 0.03:
        yield Finding(
            "score rises, accuracy falls",
            f"the reward rose from {score[0]:.3g} to {score[1]:.3g} over {WINDOW} episodes while right answers fell from "
            f"{right[0]:.1%} to {right[1]:.1%}: something else than right answers is being paid",
            "read samples.jsonl; raise --kl_coef, lower the reward model's weight, or `rlvr audit` the reward function",
            ("objective/scores", "outcome/correct"),
        )


def _dominating(rows: Rows) -> Iterator[Finding]:
    functions = [n for n in rows[-1] if n.startswith("reward/") and n.count("/") == 1]
    moves = {}
    for name in functions:
        trend = _trend(rows, name)
        if trend is not None:
            moves[name] = abs(trend[1] - trend[0])
    total = sum(moves.values())
    if len(moves) < 2 or total < 0.05:
        return
    name = max(moves, key=lambda n: moves[n])
    if moves[name] > 0.95 * total:
        yield Finding(
            "one component dominates",
            f"{moves[name] / total:.0%} of what changed in the rewards over {WINDOW} episodes is {name.removeprefix('reward/')!r}",
            "scale the components alike (--reward_aggregation normalise_then_sum) or change --reward_weights",
            tuple(functions),
        )


CHECKS = (
    _constant, _hardly_right, _groups, _failing, _environment, _timed_out, _truncated, _divergence, _too_far, _ratios, _dropping, _mismatch, _clipping, _critic, _skipped, _spikes, _lengthening, _entropy,
    _hacking, _dominating,
)  # fmt: skip
