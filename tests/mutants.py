"""A test of the tests: important lines are broken, one at a time, in a copy of the checkout; the tests beside each must fail.

    uv run python -m tests.mutants                 # all, some minutes on 2 cores
    uv run python -m tests.mutants --only gae kl   # those with such a word in their name

Each mutant is one line of `MUTANTS`: found by its text, so when the code changes or moves, adapt the line here. A mutant that
no test notices is a hole in the tests, and the exit status is 1. The same tests run unbroken first, so that a failure means
something.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = ("rlvr", "rewards", "templates", "scripts", "tests", "benchmarks", "pyproject.toml")
LIMIT_S = 900


@dataclass(frozen=True)
class Mutant:
    """One broken line: `old`, which stands once in `file`, becomes `new`; `tests` (of them those that match `k`) must notice."""

    name: str
    file: str
    old: str
    new: str
    tests: str
    k: str = ""


MISMATCH = "rlvr/core/mismatch.py"
LOSSES, PER_TOKEN = "rlvr/core/losses.py", "rlvr/core/advantages.py"
CONTROL = "rlvr/core/entropy_control.py"
STATISTICS = "rlvr/evaluation/statistics.py"
MAKER, SCORING = "rlvr/experience/maker.py", "rlvr/experience/scoring.py"
# fmt: off
MUTANTS = [
    Mutant("sign of the advantage", LOSSES, "free = -gain * ratio\n", "free = gain * ratio\n", "tests/core/test_losses.py"),
    Mutant("ratio clip: the better bound, not the worse", LOSSES, "loss = torch.maximum(free, bound)", "loss = torch.minimum(free, bound)", "tests/core/test_losses.py"),
    Mutant("ratio clip: clip higher ignored", LOSSES, "clamp(1.0 - clip_range, 1.0 + high)", "clamp(1.0 - clip_range, 1.0 + clip_range)", "tests/core/test_losses.py"),
    Mutant("CISPO: the weight has a gradient", LOSSES, "ratio = move.ratio.detach()", "ratio = move.ratio", "tests/core/test_losses.py", "cispo"),
    Mutant("CISPO: no upper bound", LOSSES, "clamp(max(0.0, 1.0 - clip_range), 1.0 + high)", "clamp(max(0.0, 1.0 - clip_range))", "tests/core/test_losses.py", "cispo"),
    Mutant("SAPO: one tau for all", LOSSES, ".masked_fill(move.gain > 0, tau_pos)", "", "tests/core/test_losses.py", "sapo"),
    Mutant("SAPO: slope at ratio 1 is not 1", LOSSES, "* 4.0 / tau", "* 4.0", "tests/core/test_losses.py", "sapo"),
    Mutant("covariance without the mean of the advantages", CONTROL, "(columns - means[:, None, None]).prod(0)", "(columns - means[:, None, None] * torch.tensor([1.0, 0.0]).double()[:, None, None]).prod(0)", "tests/core/test_entropy_control.py"),
    Mutant("Clip-Cov draws outside its range, too", CONTROL, "mask & (covariance > covariances_from)", "mask | (covariance > covariances_from)", "tests/core/test_entropy_control.py"),
    Mutant("tokens counted on this rank alone", CONTROL, "float(all_reduce(mask.sum().double()))", "float(mask.sum().double())", "tests/core/test_entropy_control.py"),
    Mutant("top entropy leaves out what it should keep", "rlvr/trainer/ppo_update.py", 'chosen if a.entropy_control == "top_entropy" else ~chosen', 'chosen if a.entropy_control == "clip_cov" else ~chosen', "tests/trainer/test_learning.py", "entropy_control"),
    Mutant("KL-Cov's penalty pulls the wrong way", "rlvr/trainer/ppo_update.py", "per_token + a.kl_cov_coef", "per_token - a.kl_cov_coef", "tests/trainer/test_learning.py", "entropy_control"),
    Mutant("float32 head: autocast rounds it", "rlvr/core/logprobs.py", "cast = at_least_float32 if float32 else _autocast", "cast = _autocast", "tests/core/test_logprobs.py", "a37"),
    Mutant("partial rollouts: the weights of the episode sample no rest", "rlvr/ray/ahead.py", "share = left if weights.version == self.last else", "share =", "tests/on_ray/test_partial.py"),
    Mutant("partial rollouts: the logprobs of the newest part alone", "rlvr/rollout/engine.py", "both(begun.logprobs, more.logprobs)", "more.logprobs", "tests/on_ray/test_partial.py"),
    Mutant("partial rollouts: what is there of a response is forgotten", "rlvr/ray/roles.py", "ids = ((*p.ids, *r.response_ids.tolist()) for", "ids = ((*p.ids,) for", "tests/on_ray/test_partial.py"),
    Mutant("4 bits: scales without their offset", "rlvr/models/quantized.py", "offset=self.offset,", "offset=0 * self.offset,", "tests/models/test_quantized.py", "rounded_and"),
    Mutant("4 bits: an adapter is merged into the whole base", "rlvr/models/lora_config.py", "if base is not None and base.quantization:", "if False:", "tests/models/test_quantized.py", "goes_over"),
    Mutant("value clip", LOSSES, "loss = torch.maximum(loss, bounded_loss)", "loss = torch.minimum(loss, bounded_loss)", "tests/core/test_losses.py"),
    Mutant("response mask left out of the loss", LOSSES, "return masked_sum(per_token, mask) / (size.tokens or 1.0)", "return per_token.sum() / (size.tokens or 1.0)", "tests/core/test_aggregate.py"),
    Mutant("accumulation: divided by the micro-batch, not the step", LOSSES, "dim=1).sum() / (size.sequences or 1.0)", "dim=1).mean()", "tests/core/test_aggregate.py"),
    Mutant("accumulation: tokens of the micro-batch", LOSSES, "/ (size.tokens or 1.0)", "/ max(1, int(mask.sum()))", "tests/trainer/test_learning.py", "a20"),
    Mutant("GAE without lambda", PER_TOKEN, "at(t, gamma * lam)", "at(t, gamma)", "tests/core/test_advantages.py"),
    Mutant("turns are discounted at every token", PER_TOKEN, "torch.where(turn_ends[:, t], one * factor, one)", "one * factor", "tests/core/test_advantages.py"),
    Mutant("GAE reads values outside the mask", PER_TOKEN, "next_value = torch.where(here, values[:, t], next_value)", "next_value = values[:, t]", "tests/core/test_advantages.py"),
    Mutant("optimal token baseline: each token's own norm", PER_TOKEN, "norms.cumsum(dim=1)", "norms", "tests/core/test_grouped.py"),
    Mutant("optimal token baseline: foreign tokens shift the places", PER_TOKEN, "(~mask).long().argsort(dim=1, stable=True)", "torch.arange(mask.size(1)).expand(mask.shape)", "tests/core/test_grouped.py"),
    Mutant("optimal token baseline: compared with itself alone", PER_TOKEN, "(left > 1) & (weight > 0)", "(left > 0) & (weight > 0)", "tests/core/test_grouped.py"),
    Mutant("optimal token baseline: unscored responses weigh, too", PER_TOKEN, "(mask & g.counted[:, None]).gather", "mask.gather", "tests/core/test_grouped.py"),
    Mutant("score norms: the token's probability once", PER_TOKEN, "1.0 - 2.0 * logprobs.double().exp()", "1.0 - logprobs.double().exp()", "tests/core/test_grouped.py"),
    Mutant("squared probabilities that are not squared", "rlvr/core/logprobs.py", "logp.exp_().square_().sum(dim=1)", "logp.exp_().sum(dim=1)", "tests/core/test_logprobs.py", "squared"),
    Mutant("reference: follows after every episode", "rlvr/trainer/online.py", "a.reference_reset_interval or self.progress.episode % a.reference_reset_interval", "a.reference_reset_interval", "tests/trainer/test_reference.py", "every_so_many"),
    Mutant("reference: moves the other way", "rlvr/boost/frozen.py", "p.lerp_(target, share)", "p.lerp_(target, -share)", "tests/trainer/test_reference.py", "moving_average"),
    Mutant("reference: the optimizer goes on after a reset", "rlvr/trainer/online.py", "if a.reference_mix == 1:", "if a.reference_mix > 1:", "tests/trainer/test_reference.py", "begins_anew_where"),
    Mutant("reference: a resumed run has the first one", "rlvr/trainer/online.py", "others=self._moving_reference(),", "", "tests/trainer/test_reference.py", "stopped"),
    Mutant("reference: small moves are rounded away", "rlvr/boost/frozen.py", "if share < 1 and ", "if share < 0 and ", "tests/trainer/test_reference.py", "can_not_follow"),
    Mutant("schedule: the floor is the start of the line", "rlvr/boost/optimizer.py", "return floor + (1 - floor) * (1 - share)\n", "return floor + (1 - floor) * share\n", "tests/trainer/test_learning.py", "a22"),
    Mutant("schedule: constant falls as the line does", "rlvr/boost/optimizer.py", 'if shape == "constant":', 'if shape == "none":', "tests/trainer/test_learning.py", "a22"),
    Mutant("KL sign in the reward", "rlvr/core/kl.py", "torch.where(mask, -kl_coef * ", "torch.where(mask, kl_coef * ", "tests/core/test_rewards.py"),
    Mutant("score on every token", "rlvr/core/kl.py", "torch.where(last_token(mask), ", "torch.where(mask, ", "tests/core/test_rewards.py"),
    Mutant("KL estimate k3 of the other direction", "rlvr/core/kl.py", "bounded_exp(-d) - 1.0 + d", "bounded_exp(d) - 1.0 - d", "tests/core/test_kl.py"),
    Mutant("KL estimate k3_weighted without the ratio's gradient", "rlvr/core/kl.py", "bounded_exp(zero_unless(finite, log_ratio)) * k3", "bounded_exp(zero_unless(finite, log_ratio)).detach() * k3", "tests/core/test_kl.py"),
    Mutant("KL in the loss without the old policy", "rlvr/trainer/ppo_update.py", "kl_kind_of(step.config), batch.logprobs)", "kl_kind_of(step.config), new.logprobs)", "tests/trainer/test_learning.py", "a15"),
    Mutant("importance weights upside down", MISMATCH, "at_least_float32(logprobs).detach() - at_least_float32(sampler_logprobs).detach()", "at_least_float32(sampler_logprobs).detach() - at_least_float32(logprobs).detach()", "tests/core/test_mismatch.py"),
    Mutant("a masked response keeps its weight", MISMATCH, "(judged >= c.low) & (judged <= c.high), weight, 0.0)", "(judged >= c.low) | (judged <= c.high), weight, 0.0)", "tests/core/test_mismatch.py"),
    Mutant("tokens that don't count in a response's ratio", MISMATCH, "else masked_mean)(log_ratio, mask, dim=1)", "else masked_mean)(log_ratio, torch.ones_like(mask), dim=1)", "tests/core/test_mismatch.py"),
    Mutant("positive advantages are left out too", MISMATCH, "far[:, None] & (advantages < 0)", "far[:, None] & (advantages <= 9)", "tests/core/test_mismatch.py"),
    Mutant("weights against the present policy", "rlvr/trainer/ppo_update.py", "importance_weights(batch.logprobs, batch.sampler_logprobs,", "importance_weights(logprobs, batch.sampler_logprobs,", "tests/trainer/test_learning.py", "importance"),
    Mutant("stop token not part of the response", "rlvr/core/masked.py", "stops.long().cumsum(dim=1) - stops.long() == 0", "stops.long().cumsum(dim=1) == 0", "tests/core/test_masks.py"),
    Mutant("bootstrap after a finished response, too", MAKER, "scores.last_values.masked_fill(~continued, 0.0)", "scores.last_values", "tests/trainer/test_ppo.py", "a02"),
    Mutant("unscored responses are trained on", MAKER, '"mask": learned', '"mask": mask', "tests/trainer/test_ppo.py", "a26"),
    Mutant("a bootstrapped response is paid its score, too", MAKER, "totals.masked_fill(continued, 0.0)", "totals", "tests/trainer/test_ppo.py", "a12"),
    Mutant("whitened rewards of untrained responses", MAKER, "whiten(rewards, learned,", "whiten(rewards, mask,", "tests/trainer/test_phases.py", "whitened"),
    Mutant("scores of trained responses only", MAKER, "record_totals(meter, verdicts.totals, verdicts.scored)", "record_totals(meter, verdicts.totals, verdicts.trained)", "tests/trainer/test_ppo.py", "a31"),
    Mutant("prompts of a refill are thrown away", "rlvr/experience/dynamic_sampling.py", "            waiting += next_prompts()", "            waiting[:] = next_prompts()[:1]", "tests/trainer/test_dynamic.py", "come_first"),
    Mutant("explained variance of the critic's own targets", MAKER, "plain_returns(inputs), learned", "out.returns, learned", "tests/experience/test_explained_variance.py"),
    Mutant("the critic's steps all on the whole batch", "rlvr/trainer/ppo_update.py", "return [batch[a:b] for a, b in pairwise(cuts) if a < b]", "return [batch for a, b in pairwise(cuts) if a < b]", "tests/trainer/test_estimators.py", "several_steps"),
    Mutant("old logprobs at temperature 1", SCORING, "run(batch, temperature, True,", "run(batch, 1.0, True,", "tests/trainer/test_ppo.py", "a16"),
    Mutant("reference logprobs at temperature 1", SCORING, "reference.forward(batch, temperature,", "reference.forward(batch, 1.0,", "tests/trainer/test_ppo.py", "a02"),
    Mutant("sign of the entropy bonus", "rlvr/trainer/ppo_update.py", "per_token - a.entropy_coef * new.entropy", "per_token + a.entropy_coef * new.entropy", "tests/trainer/test_learning.py", "entropy"),
    Mutant("resume without the random state", "rlvr/checkpoint/storage.py", 'torch.set_rng_state(state["cpu"])', "pass", "tests/trainer/test_resume.py", "random_numbers"),
    Mutant("resume without the prompts that wait", "rlvr/trainer/online.py", 'self._unsampled = own.get("unsampled", ())', "self._unsampled = ()", "tests/trainer/test_dynamic.py", "checkpoint"),
    Mutant("a failed rename loses the older checkpoint", "rlvr/checkpoint/storage.py", "        if old.exists():\n            old.rename(target)\n        raise", "        raise", "tests/checkpoint/test_storage.py"),
    Mutant("a draft stays where a checkpoint was written", "rlvr/checkpoint/storage.py", "        draft.rename(target)\n", "        shutil.copytree(draft, target)\n", "tests/checkpoint/test_storage.py"),
    Mutant("no reward deadline", "rewards/pool/limits.py", "return elapsed_s > deadline_s + min(waited_s, deadline_s)", "return elapsed_s > 1e9", "tests/rewards/pool"),
    Mutant("grader: nearly equal numbers are equal", "rewards/maths/equivalence.py", "if numbers[0] is not None and numbers[0] == numbers[1]:", "if None not in numbers and abs(numbers[0] - numbers[1]) < 0.01:", "tests/rewards/test_grade.py tests/rewards/maths/test_compare.py"),
    Mutant("grader: whole numbers by their length", "rewards/maths/equivalence.py", 'answer.lstrip("0") == gold.lstrip("0")', "len(answer) == len(gold)", "tests/rewards/test_grade.py"),
    Mutant("groups that are all right are counted as signal", STATISTICS, "- math.comb(right, k) / math.comb(samples, k)", "", "tests/evaluation/test_statistics.py", "signal"),
    Mutant("bootstrap: resampled over all strata", STATISTICS, "for values in strata for value in draw.choices(values, k=len(values))", "for values in strata for value in draw.choices([v for vs in strata for v in vs], k=len(values))", "tests/evaluation/test_statistics.py", "bootstrap"),
    Mutant("paired difference: another seed's baseline", "rlvr/study/results.py", "ends[other, curve.seed]))", "min(ends.values())))", "tests/study/test_results.py", "seed_by_seed"),
    Mutant("generated problems: a sum and its mirror image in two splits", "rlvr/data/patterns.py", "both.reverse()", "pass", "tests/data/test_generated.py", "mirror"),
]
# fmt: on


def main() -> int:
    """Break, test, tell. Returns the exit status: 1 if a mutant survives."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="words in the names of the mutants to try")
    words = [word.lower() for word in parser.parse_args().only]
    chosen = [mutant for mutant in MUTANTS if any(word in mutant.name.lower() for word in words)]
    if not chosen:
        raise SystemExit(
            f"no mutant has {' or '.join(words)} in its name; there are: {', '.join(m.name for m in MUTANTS)}"
        )
    for mutant in chosen:
        broken(mutant)  # all of them are found before anything runs
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = copied(Path(folder))
        check_unbroken(copy, chosen)
        survivors = [mutant.name for mutant in chosen if not noticed(copy, mutant)]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants were noticed")
    for name in survivors:
        print(f"SURVIVED: {name}")
    return 1 if survivors else 0


def broken(mutant: Mutant) -> str:
    """The mutant's file with its line broken.

    Raises:
        SystemExit: the line is not there, or there more than once.
    """
    path = ROOT / mutant.file
    text = path.read_text() if path.is_file() else ""
    if text.count(mutant.old) != 1:
        found = f"{text.count(mutant.old)} times" if text else "not a file"
        raise SystemExit(
            f"mutant {mutant.name!r}: {mutant.old!r} is to stand once in {mutant.file}: {found}. Adapt MUTANTS."
        )
    return text.replace(mutant.old, mutant.new)


def copied(folder: Path) -> Path:
    """What the tests need of the checkout, in a folder that may be broken."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        else:
            shutil.copy(source, folder / name)
    return folder


def check_unbroken(copy: Path, mutants: list[Mutant]) -> None:
    """Run every test of the mutants on the copy as it is: whole files together, and those of which a part is asked for.

    Raises:
        SystemExit: one of them fails, so that its failing would say nothing.
    """
    for some in ([m for m in mutants if not m.k], [m for m in mutants if m.k]):
        files = " ".join(dict.fromkeys(file for m in some for file in m.tests.split()))
        done = pytest_on(copy, files, " or ".join(dict.fromkeys(m.k for m in some))) if some else None
        if done is not None and done.returncode:
            raise SystemExit(f"pytest {files} fails with nothing broken:\n{done.stdout[-3000:]}")


def noticed(copy: Path, mutant: Mutant) -> bool:
    """Whether a test fails where this line is broken; prints a line."""
    start, file = time.monotonic(), copy / mutant.file
    whole = file.read_text()
    file.write_text(broken(mutant))
    try:
        status = pytest_on(copy, mutant.tests, mutant.k).returncode
    finally:
        file.write_text(whole)
    if status not in (0, 1):  # 1: tests failed; anything else: none was run
        raise SystemExit(f"mutant {mutant.name!r}: pytest {mutant.tests} -k {mutant.k!r} ended with status {status}")
    print(f"{'noticed ' if status else 'SURVIVED'}  {time.monotonic() - start:5.0f} s  {mutant.name}", flush=True)
    return status == 1


def pytest_on(copy: Path, files: str, k: str) -> "subprocess.CompletedProcess[str]":
    """Run tests of the copy on the copy's own modules, up to the first failure."""
    command = [
        sys.executable,
        *"-m pytest -n 0 -x -q -p no:cacheprovider".split(),
        *files.split(),
        *(["-k", k] if k else []),
    ]
    env = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, timeout=LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
