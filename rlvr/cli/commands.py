"""The table of commands: a line each. A new command is a function in a file of its own and its line here."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr.cli.parser import Parser

Run = Callable[[list[str]], None]


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        where: `module:function` in this folder; called with the words after the command's name.
        flags: `module:name` of what its flags are: a tree of settings, or (in this folder) what makes one or a `Parser`.
        text: one line of help.
        more: further flags, which belong to no tree.
    """

    where: str
    flags: str
    text: str
    more: tuple[str, ...] = ()

    def load(self) -> Run:
        """The function; what it needs is imported only now."""
        return named(self.where)

    def flags_or_tree(self) -> "Parser | type":
        """The source of its flags: the `Parser` of its flags, or the tree of settings whose fields are its flags."""
        found = named(self.flags)
        return found if isinstance(found, type) else found()


def named(place: str) -> Any:
    """The object at `module:name`; a module without a dot is one of this folder's."""
    module, name = place.split(":")
    return getattr(import_module(module if "." in module else f"rlvr.cli.{module}"), name)


TREE = ("config", "help_all")

# fmt: off
COMMANDS = {
    "train": Command("train:train_command", "rlvr.config:Config", "train by PPO and its relatives", (*TREE, "dry_run")),
    "sft": Command("train:sft_command", "rlvr.config:SFTConfig", "fine-tune on prompts and responses", (*TREE, "dry_run")),
    "reward-model": Command("train:reward_model_command", "rlvr.config:RewardTrainingConfig", "train a reward model on pairs of responses", (*TREE, "dry_run")),
    "llm": Command("llm:llm_command", "llm:options", "the same trainers with the flags of `aitraining llm`", ("train", "help_all")),
    "eval": Command("evaluate:eval_command", "evaluate:eval_parser", "accuracy of a model on problems, with its interval"),
    "tasks": Command("tasks:tasks_command", "tasks:tasks_parser", "which data sets a model can learn from, before it is trained"),
    "compare": Command("compare:compare_command", "compare:compare_parser", "which of two evaluated models is better, with a test"),
    "report": Command("report:report_command", "report:report_parser", "one HTML page about runs: curves, diagnosis, samples"),
    "runs": Command("runs:runs_command", "runs:runs_parser", "the runs in a folder: how far each is, and its newest figures"),
    "replay": Command("replay:replay_command", "replay:replay_parser", "a step of a run computed again, bit for bit"),
    "chat": Command("chat:chat_command", "chat:chat_parser", "talk to a model, with verdicts where the answer is known"),
    "vllm-serve": Command("vllm_serve:vllm_serve_command", "vllm_serve:vllm_serve_parser", "start a vLLM server that training asks for responses"),
    "study": Command("study:study_command", "study:study_parser", "a grid of settings and seeds, trained and compared"),
    "push": Command("push:push_command", "push:push_parser", "upload a trained model to the Hugging Face hub, with its card"),
    "score": Command("score:score_command", "score:score_parser", "score a file of responses (JSONL, CSV, Parquet)"),
    "audit": Command("audit:audit_command", "audit:audit_parser", "try to fool a reward function; check a data set's answers"),
    "leaderboard": Command("leaderboard:leaderboard_command", "leaderboard:leaderboard_parser", "graders side by side: false verdicts, exploits, hangs, speed"),
    "rewards": Command("rewards:rewards_command", "rewards:rewards_parser", "the reward functions, or all about one"),
    "template": Command("template:template_command", "template:template_parser", "list templates; prove that one fits a tokenizer"),
    "doctor": Command("doctor:doctor_command", "doctor:doctor_parser", "what works on this machine, and a training step to show it"),
    "completion": Command("completion:completion_command", "completion:completion_parser", "completion for bash, zsh, fish or tcsh"),
}
# fmt: on
