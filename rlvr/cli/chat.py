"""`rlvr chat MODEL`: talk to a model in the terminal, with the template that it was trained with."""

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from rlvr.cli.parser import Parser
from rlvr.errors import UserError
from rlvr.rollout.registry import ENGINES

if TYPE_CHECKING:
    from rlvr.chat.session import AnswerScorer, ChatSession
    from rlvr.rollout.engine import Sampling


def chat_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="rlvr chat",
        description="Talk to a model. Lines that begin with / are commands: /help lists them. A pipe is answered line by line.",
    )
    parser.add_argument(
        "model", metavar="MODEL", help="tiny, smollm2-135m, the folder of a run or of a model, or a hub name"
    )
    conversation = parser.add_argument_group("conversation")
    add = conversation.add_argument
    add("--conversation_template_config", default="auto", metavar="NAME", help="template: shipped name or JSON file")
    add("--system", metavar="TEXT", help="system message in place of the template's")
    add(
        "--single_turn",
        action="store_true",
        default=None,
        help="ask each question by itself; the built-in model's default",
    )
    add(
        "--no_single_turn",
        action="store_false",
        dest="single_turn",
        help="ask it after what was said; other models' default",
    )
    rewards = parser.add_argument_group("verdicts")
    add = rewards.add_argument
    add("--gold", metavar="ANSWER", help="right answer to compare with, until /gold says another")
    add("--reward_functions", nargs="+", default=[], metavar="NAME", help="functions whose scores to show")
    add("--reward_plugins", nargs="+", default=[], metavar="FILE", help="Python files or modules to import")
    add("--reward_options", metavar="JSON", help="keyword arguments by function name")
    sampling = parser.add_argument_group("sampling", "What is left out is as the saved model says, else greedy.")
    add = sampling.add_argument
    add("--temperature", type=float, metavar="X", help="0 is greedy")
    add("--top_k", type=int, metavar="N", help="0 is all tokens")
    add("--top_p", type=float, metavar="X", help="1 is all tokens")
    add("--max_new_tokens", type=int, metavar="N", help="most tokens of an answer; else 512, if the model does not say")
    add("--seed", type=int, default=0, metavar="N", help="of sampling")
    add("--engine", choices=[name for name in ENGINES if name != "replay"], default="hf", help="what samples")
    add("--mixed_precision", choices=["auto", "fp32", "bf16"], default="auto", help="arithmetic of the model")
    add("--num_threads", type=int, metavar="N", help="CPU threads; else all cores")
    add("--trust_remote_code", action="store_true", help="run Python code that comes with a hub model")
    return parser


def chat_command(argv: list[str]) -> None:
    """Load the model and chat until the user or the pipe ends.

    Raises:
        UserError: a model, template or function that can't be used, or a value out of range.
    """
    a = chat_parser().parse_args(argv)
    _check(a)
    from rlvr.chat.loop import ChatLoop
    from rlvr.chat.screen import ColourScreen, PlainScreen
    from rlvr.tracking.terminal import Terminal

    console = Terminal(highlight=False)
    session, scorer = _open(a)
    if sys.stdin.isatty() and console.is_terminal:
        screen = ColourScreen(console)
        screen.note(
            f"{a.model}, template {session.conversation.template.source}; {_sampling(session.sampling)}; "
            f"{'each question by itself' if session.single_turn else 'each question after what was said before (/reset)'}. /help, /quit"
        )
        ChatLoop(session, scorer, screen).run_at_terminal()
    else:
        if hasattr(sys.stdin, "reconfigure"):
            sys.stdin.reconfigure(errors="replace")
        ChatLoop(session, scorer, PlainScreen()).run_on_lines(sys.stdin)


def _check(a: argparse.Namespace) -> None:
    for name, least in (("temperature", 0), ("top_k", 0), ("max_new_tokens", 1), ("num_threads", 1), ("seed", 0)):
        value = getattr(a, name)
        if value is not None and not least <= value < float("inf"):
            raise UserError(f"--{name} {value}: must be at least {least}")
    if a.top_p is not None and not 0 < a.top_p <= 1:
        raise UserError(f"--top_p {a.top_p}: must lie above 0 and be at most 1")
    if a.temperature == 0 and (a.top_k or (a.top_p or 1) < 1):
        raise UserError("--top_k and --top_p have no effect at --temperature 0, which is greedy: leave them out")
    if a.reward_options and not a.reward_functions:
        raise UserError("--reward_options has no effect without --reward_functions: leave it out, or name the function")


def _open(a: argparse.Namespace) -> "tuple[ChatSession, AnswerScorer]":
    """The session, and what scores its answers."""
    from transformers.utils.logging import disable_progress_bar

    from rewards import load_plugins
    from rlvr.boost.host import set_threads
    from rlvr.boost.process import local_device
    from rlvr.chat.session import AnswerScorer, ChatSession, default_sampling
    from rlvr.config.reward_options import parse_reward_options
    from rlvr.evaluation.policy import Policy
    from rlvr.models.loading import TINY
    from rlvr.prompting.template import ConversationTemplate

    disable_progress_bar()
    set_threads(a.num_threads)
    load_plugins(a.reward_plugins)
    policy = Policy.open(
        a.model,
        local_device(),
        template=a.conversation_template_config,
        engine=a.engine,
        mixed_precision=a.mixed_precision,
        trust_remote_code=a.trust_remote_code,
    )
    scorer = AnswerScorer(policy, a.reward_functions, parse_reward_options(a.reward_options))
    model = policy.load()
    given = {n: getattr(a, n) for n in ("temperature", "top_k", "top_p", "max_new_tokens")}
    given = {name: value for name, value in given.items() if value is not None}
    sampling = default_sampling(model, policy.conversation)
    if a.temperature == 0:
        given |= {"top_k": 0, "top_p": 1.0}
    sampling = replace(sampling, **given)
    if sampling.temperature == 0 and (sampling.top_k or sampling.top_p < 1):
        raise UserError(
            "--top_k and --top_p have no effect on greedy answers, which this model gives: add --temperature X"
        )
    alone = a.single_turn
    if alone is None:  # the built-in model has never seen a second question
        alone = policy.conversation.template.chat_template == ConversationTemplate.load(TINY).chat_template
    session = ChatSession(policy, model, sampling, a.seed, alone)
    session.gold = a.gold
    if a.system is not None:
        session.set_system_message(a.system)
    return session, scorer


def _sampling(sampling: "Sampling") -> str:
    kind = f"temperature {sampling.temperature:g}" if sampling.temperature else "greedy"
    return f"{kind}, at most {sampling.max_new_tokens} tokens"
