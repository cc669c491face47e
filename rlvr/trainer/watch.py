"""Signs of a run going wrong, told while it can still be stopped."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlvr.trainer.callbacks import Callback

if TYPE_CHECKING:
    from rlvr.trainer.online import OnlineTrainer

REPEAT_EPISODES = 10
PATIENCE_EPISODES = 3


class Watch(Callback):
    """Warns when rewards are constant, a reward function fails, everything is truncated, or the divergence explodes.

    A sign must last `PATIENCE_EPISODES` episodes (failing reward functions are told at once), and each warning comes at most every `REPEAT_EPISODES`.
    """

    def __init__(self) -> None:
        self._lasting: dict[str, int] = {}
        self._warned: dict[str, int] = {}

    def on_episode_end(self, trainer: "OnlineTrainer", episode: int, metrics: Mapping[str, float]) -> None:
        found = signs(metrics)
        self._lasting = {sign: self._lasting.get(sign, 0) + 1 for sign in found}
        for sign, message in found.items():
            last = self._warned.get(sign, -REPEAT_EPISODES)
            patience = 1 if sign.startswith("failed") else PATIENCE_EPISODES
            if self._lasting[sign] >= patience and episode - last >= REPEAT_EPISODES:
                self._warned[sign] = episode
                trainer.warn(message)


def signs(metrics: Mapping[str, float]) -> dict[str, str]:
    """The bad signs in one episode's metrics: name -> what it is and what usually helps."""
    found = {}
    score = metrics.get("objective/scores", 0.0)
    if metrics.get("objective/scores_std", 1.0) < 1e-6 and score < 1:
        found["constant"] = (
            f"every response gets the same reward ({score:g}), so there is nothing to learn from: look at samples.jsonl; "
            "easier problems, a format reward, or another template usually help"
        )
    for name, share in metrics.items():
        if name.startswith("reward/") and name.endswith("/failed") and share > 0:
            function = name.removeprefix("reward/").removesuffix("/failed")
            found[f"failed {function}"] = (
                f"reward function {function!r} hung, crashed or failed on {share:.1%} of responses, which were left out: mend "
                "it, or give it more time or memory (--reward_timeout_s, --reward_memory_mb)"
            )
    if metrics.get("response/truncated", 0.0) > 0.95:
        found["truncated"] = (
            f"{metrics['response/truncated']:.0%} of responses hit the length limit: raise --max_new_tokens, or check the "
            "template's stop tokens (rlvr template check)"
        )
    kl = metrics.get("objective/kl", 0.0)
    approx = metrics.get("policy/approxkl_avg", 0.0)
    if not math.isfinite(kl) or kl > 100 or approx > 0.5:
        found["kl"] = (
            f"the policy is running away (KL from the initial model {kl:.3g} per response, from the sampling policy "
            f"{approx:.3g} per token): lower --lr, or raise --kl_coef"
        )
    return found
