"""Games of TextArena (https://github.com/LeonGuertler/TextArena) for one player: `--environment textarena`.

    pip install 'rlvr[textarena]'

A game's outcome is paid at its end, as the game gives it (often 0 to 1, by how far the player came). A game that is not over when the turns
are used up pays nothing.
"""

from typing import Any

from rewards.adapters.game import Game
from rewards.errors import UserError, nearest

_GAME = -1
"""Who says what the player did not."""


class TextArena(Game):
    """A game for one player. Its own messages are read, without what the player said."""

    package = "textarena"
    install = "pip install 'rlvr[textarena]'"

    def begin(self, game: str, seed: int) -> str:
        arena = self.imported()
        known = [name for name in arena.envs.registration.ENV_REGISTRY if name.endswith("-raw")]
        name = game.removesuffix("-raw") + "-raw"  # without wrappers, which say everything again at each turn
        if name not in known:
            near = nearest(game, [other.removesuffix("-raw") for other in known])
            raise UserError(f"textarena has no game {game!r}.{near}")
        try:
            self.game: Any = arena.make(name)
            self.game.reset(num_players=1, seed=seed)
        # Games for several players, or that need a key or words from the network, fail each in its own way.
        except Exception as error:
            reason = (str(error).strip().splitlines() or [""])[0]
            raise UserError(
                f"textarena can't begin {game} for one player: {type(error).__name__}: {reason[:200]}"
            ) from error
        return self._said()

    def move(self, text: str) -> tuple[str, bool, dict[str, float]]:
        done, _ = self.game.step(text)
        said = self._said()
        if not done:
            return said, False, {}
        rewards, info = self.game.close()
        about = (info or {}).get(0, {})
        scores = {"score": float((rewards or {}).get(0, 0.0)), "_invalid": float(bool(about.get("invalid_move")))}
        return said or str(about.get("reason", "")), True, scores

    def _said(self) -> str:
        _, messages = self.game.get_observation()
        return "\n".join(text for sender, text, *_ in messages if sender == _GAME).strip()
