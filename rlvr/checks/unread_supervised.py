"""When each setting of a supervised run is read (`rlvr.checks.unread` says what comes of it)."""

from collections.abc import Collection

from rlvr.checks.unread import Rule, refuse_unread
from rlvr.checks.unread_parallel import PARALLEL
from rlvr.checks.unread_results import RESULTS
from rlvr.config import RewardTrainingConfig, SFTConfig, reward_training_config, sft_config
from rlvr.config.catalog import Place

AnyConfig = SFTConfig | RewardTrainingConfig
BUILTIN = "builtin"


def check_unread(config: AnyConfig, flags: Collection[Place] = ()) -> None:
    """Refuse settings of the user that nothing reads; `flags` are those that flags gave.

    Raises:
        UserError: names the first such setting, says why it has no effect and what to do.
    """
    is_sft = isinstance(config, SFTConfig)
    base = (sft_config if is_sft else reward_training_config)({"model": {"pretrain": config.model.pretrain}})
    refuse_unread(config, base, (*(OF_SFT if is_sft else OF_REWARD_MODEL), *BOTH, *PARALLEL, *RESULTS), flags)


def _sources(c: AnyConfig) -> list[str]:
    return c.data.dataset if isinstance(c, SFTConfig) else c.data.preference_dataset


def _reads_files(c: AnyConfig) -> bool:
    return any(s != BUILTIN and not s.startswith(f"{BUILTIN}:") for s in (*_sources(c), *c.data.eval_dataset))


def _evaluates(c: AnyConfig) -> bool:
    return bool(c.data.eval_dataset or c.data.eval_share) or _sources(c) == [BUILTIN]


def _columns(*names: str) -> Rule:
    return Rule("data", names, _reads_files, lambda c: ": the built-in data has no columns to choose from")


BOTH = (
    _columns("prompt_text_column", "text_column", "question_column"),
    Rule(
        "eval",
        ("eval_interval", "eval_samples"),
        _evaluates,
        lambda c: ": nothing is held out",
        lambda c: "Leave it out, or give --eval_dataset or --eval_share",
        off=(0, None),
    ),
)
OF_SFT = (_columns("answer_column"),)
OF_REWARD_MODEL = (_columns("rejected_text_column", "margin_column"),)
