"""`rlvr replay RUN --step N`: a step of a run computed again from its journal, and compared bit for bit with what it gave."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.cli.parser import Parser
from rlvr.config import Config
from rlvr.config.flags import parse
from rlvr.errors import UserError, escape_control_characters

if TYPE_CHECKING:
    from rlvr.replay.repeat import Repeated

DIFFERS = 1
"""Exit status where a step is not the same."""


def replay_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="rlvr replay", description="Compute a step of a run again from its journal (rlvr train --journal N)."
    )
    parser.add_argument("run", metavar="RUN", help="folder of a run")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--step", type=int, metavar="N", help="the episode, counted from 1")
    what.add_argument(
        "--bisect",
        nargs="?",
        const="",
        metavar="OTHER",
        help="the first step that this code computes otherwise; with another run's folder, the first in which the two runs part",
    )
    otherwise = parser.add_argument_group("otherwise", "The step as it would have been; with --step.")
    otherwise.add_argument(
        "--with", dest="settings", nargs="+", default=[], metavar="NAME=VALUE", help="with these settings of the loss"
    )
    otherwise.add_argument(
        "--rewards", nargs="+", default=[], metavar="NAME", help="scored by these functions: names, or FILE.py:NAME"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def replay_command(argv: list[str]) -> None:
    """Compute steps again and say whether they are the same. Exits with 1 if one is not.

    Raises:
        UserError: no journal, or a step that can't be computed again.
    """
    given = replay_parser().parse_args(argv)
    run = Path(given.run)
    if not (run / "config.yaml").is_file():
        raise UserError(f"{run} is no folder of a run: it has no config.yaml")
    if given.settings or given.rewards:
        if given.step is None:
            raise UserError("--with and --rewards ask what one step would have been: give --step, and no --bisect")
        return _otherwise(run, given.step, _flags(given.settings, given.rewards), given.json)
    if given.bisect:
        found = _part(run, Path(given.bisect), given.json)
    else:
        found = _repeat(run, given.step, given.json)
    if not found:
        raise SystemExit(DIFFERS)


def settings_of(run: Path, *flags: str) -> Config:
    """The settings of a run, with these flags over them."""
    return parse(["--config", str(run / "config.yaml"), *flags])


def _flags(settings: list[str], rewards: list[str]) -> list[str]:
    """The settings as flags of training."""
    words = ["--reward_functions", *rewards] if rewards else []
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise UserError(f"--with {setting}: give NAME=VALUE, such as eps_clip=0.1")
        words += [f"--{name.removeprefix('--')}", value]
    return words


def _otherwise(run: Path, step: int, flags: list[str], as_json: bool) -> None:
    from rlvr.replay.counterfactual import counterfactual

    found = counterfactual(run, settings_of(run), settings_of(run, *flags), step)
    rows = {
        name: (found.was.metrics.get(key), found.otherwise.metrics.get(key))
        for name, key in (
            ("policy loss", "loss/policy_avg"),
            ("gradient norm", "grad_norm/actor"),
            ("value loss", "loss/value_avg"),
            ("clipped tokens", "policy/clipfrac_avg"),
        )
        if key in found.was.metrics
    }
    rows |= {
        "mean reward": (found.was.reward, found.otherwise.reward),
        "KL after the step": (found.was.kl, found.otherwise.kl),
    }
    cosines = {"gradients": found.gradient_cosine, "changes of the weights": found.change_cosine}
    if as_json:
        print(
            json.dumps(
                {
                    "step": step,
                    "was": {n: a for n, (a, _) in rows.items()},
                    "otherwise": {n: b for n, (_, b) in rows.items()},
                    "cosines": cosines,
                }
            )
        )
        return
    print(f"step {step} of {escape_control_characters(str(run))}      as it was   otherwise")
    for name, (was, otherwise) in rows.items():
        print(f"  {name:<24}{_number(was):>12}{_number(otherwise):>12}")
    for name, cosine in cosines.items():
        print(f"  cosine of the {name}: {cosine:.4f}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _repeat(run: Path, step: int | None, as_json: bool) -> bool:
    """One step, or each step until one is not the same. Returns whether all were the same."""
    from rlvr.journal.journal import Journal
    from rlvr.replay.repeat import repeat, stretch_to, stretches

    config, same = settings_of(run), True
    if not as_json:
        journal = Journal(run)
        _say(
            f"journal: {len(journal.steps())} steps, {journal.bytes_per_token():.1f} bytes for each token of a response"
        )
    for stretch in [stretch_to(run, step)] if step is not None else stretches(run):
        if not as_json:
            _say(f"from {stretch.checkpoint or 'the start'}: steps {stretch.steps[0]} to {stretch.steps[-1]}")
        for repeated in repeat(run, config, stretch):
            if step is None or repeated.then.step == step or not repeated.same:
                _show(repeated, as_json)
            if not repeated.same:
                same = False
                break
        if not same:
            break
    return same


def _part(run: Path, other: Path, as_json: bool) -> bool:
    """Where two runs part. Returns whether they never do."""
    from rlvr.replay.repeat import first_difference

    found = first_difference(run, other)
    if as_json:
        print(json.dumps({"step": found.step, "in": found.what, "same_steps": found.same_steps}))
    elif found.step is None:
        _say(f"the same in all {found.same_steps} steps that both have")
    else:
        _say(f"the same in {found.same_steps} steps; step {found.step} is the first that differs, in its {found.what}")
    return found.step is None


def _show(repeated: "Repeated", as_json: bool) -> None:
    if not _is_main():
        return
    if as_json:
        print(json.dumps(_facts(repeated)))
        return
    step = repeated.then.step
    if repeated.same:
        print(f"step {step}: the same, bit for bit ({_digests(repeated.after)})")
        return
    where = "it began with other weights" if repeated.began_otherwise else "from the same weights, other ones"
    print(f"step {step}: differs; {where} ({_digests(repeated.after)}, then {_digests(repeated.then.after or {})})")
    name, off = repeated.farthest
    if name:
        print(f"  farthest off: {name}, by {off:.1e} of what it was")
    for what, then, now in repeated.made_otherwise:
        print(f"  {what}: {escape_control_characters(str(then))} then, {escape_control_characters(str(now))} now")
    if not repeated.made_otherwise:
        print("  made by the same code, versions and machine: something that a step depends on is not in its journal")


def _facts(repeated: "Repeated") -> dict[str, Any]:
    name, off = repeated.farthest
    return {
        "step": repeated.then.step,
        "same": repeated.same,
        "began_otherwise": repeated.began_otherwise,
        "after": dict(repeated.after),
        "after_then": dict(repeated.then.after or {}),
        "farthest": {name: off} if name else {},
        "made_otherwise": repeated.made_otherwise,
    }


def _digests(found: Any) -> str:
    return ", ".join(f"{role} {digest}" for role, digest in found.items())


def _say(text: str) -> None:
    if _is_main():
        print(escape_control_characters(text), flush=True)


def _is_main() -> bool:
    return os.environ.get("RANK", "0") == "0"
