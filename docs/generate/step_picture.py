"""The picture of one PPO step through the house: `python docs/generate/step_picture.py` writes docs/step.svg.

Tall rather than wide, so that it can be read on a phone. Light only: the site turns pictures over in dark mode (extra.css).
`tests/docs/test_picture.py` looks up every name that stands in it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

OUT = Path(__file__).parents[1] / "step.svg"
WIDTH, LEFT, BOX_WIDTH, BOX_HEIGHT, GAP = 640, 64, 552, 92, 26
INK, SOFT, PAPER = "#1b1f24", "#57606a", "#ffffff"
ROLES = {
    "actor": "#cfe3ff",
    "critic": "#d9f2d0",
    "reference": "#e6e0f8",
    "rules or reward model": "#ffe7c2",
}


@dataclass(frozen=True)
class Box:
    """One stage.

    Attributes:
        title: what happens.
        text: in a line.
        where: the functions that do it, `module:name`.
        roles: the models that take part.
        phase: its seconds in the metrics, `time/PHASE`.
    """

    title: str
    text: str
    where: tuple[str, ...]
    roles: tuple[str, ...] = ()
    phase: str = ""


@dataclass(frozen=True)
class Group:
    """Stages that are repeated together, and how often."""

    title: str
    boxes: tuple[Box, ...]


STEP = (
    Group(
        "make experience: --num_collect_steps times",
        (
            Box(
                "Problems become prompts",
                "a template makes tokens of each, and says where answers stand",
                ("rlvr.data.prompts:PromptLoader", "rlvr.prompting.conversation:Conversation"),
            ),
            Box(
                "Sample responses",
                "--num_generations for each prompt, until a stop token",
                ("rlvr.rollout.engine:Engine",),
                ("actor",),
                "rollout",
            ),
            Box(
                "Score them",
                "in processes that can be killed, while sampling goes on",
                ("rlvr.scorers.rules:RLVRRewardModel", "rewards.grade:grade"),
                ("rules or reward model",),
                "reward",
            ),
            Box(
                "Ask the models",
                "logprobs of what was sampled, now and at the start; values",
                ("rlvr.experience.scoring:score_rollouts",),
                ("actor", "reference", "critic"),
                "score",
            ),
            Box(
                "Rewards and advantages",
                "score on the last token, less the divergence; then --estimator",
                ("rlvr.core.kl:token_rewards", "rlvr.core.advantages:get_estimator"),
                (),
                "score",
            ),
        ),
    ),
    Group(
        "learn: --num_update_steps passes over the buffer",
        (
            Box(
                "Mini-batches",
                "advantages whitened over all processes; cut by length",
                ("rlvr.experience.experience:ExperienceBuffer",),
            ),
            Box(
                "Clipped losses, and a step",
                "policy, value; each through its role's Booster",
                ("rlvr.trainer.ppo_update:Learner", "rlvr.core.losses:aggregate"),
                ("actor", "critic"),
                "update",
            ),
        ),
    ),
    Group(
        "at the end of the episode",
        (
            Box(
                "Metrics, held-out accuracy, checkpoint",
                "metrics.jsonl, samples.jsonl, and what --resume goes on from",
                ("rlvr.experience.metrics:summarise", "rlvr.evaluation.evaluator:Evaluator"),
            ),
        ),
    ),
)


def text(x: float, y: float, words: str, size: int = 15, color: str = INK, extra: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}" {extra}>{escape(words)}</text>'


def arrow(x: float, y1: float, y2: float) -> str:
    return f'<path d="M{x:g} {y1:g}V{y2 - 2:g}" stroke="{SOFT}" stroke-width="2" fill="none" marker-end="url(#tip)"/>'


def box(b: Box, y: float) -> Iterator[str]:
    """A stage with its names beneath, its models as coloured pills and its phase at the right."""
    yield f'<rect x="{LEFT}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="8" fill="#f6f8fa" stroke="{SOFT}"/>'
    yield text(LEFT + 14, y + 25, b.title, 17, extra='font-weight="600"')
    x = LEFT + BOX_WIDTH - 12
    for role in reversed(b.roles):
        width = 7.2 * len(role) + 18
        x -= width
        yield f'<rect x="{x:g}" y="{y + 9:g}" width="{width:g}" height="22" rx="11" fill="{ROLES[role]}" stroke="{SOFT}"/>'
        yield text(x + width / 2, y + 25, role, 13, extra='text-anchor="middle"')
        x -= 6
    yield text(LEFT + 14, y + 50, b.text, 14)
    names = " · ".join(place.replace(":", ".").removeprefix("rlvr.") for place in b.where)
    yield text(LEFT + 14, y + 76, names, 12, SOFT, 'font-family="ui-monospace, monospace"')
    if b.phase:
        right = LEFT + BOX_WIDTH - 12
        yield text(right, y + 76, f"time/{b.phase}", 12, SOFT, 'text-anchor="end" font-style="italic"')


def group(g: Group, y: float) -> tuple[list[str], float]:
    """A dashed frame around its stages; returns where it ends."""
    height = 34 + len(g.boxes) * (BOX_HEIGHT + GAP) - GAP + 14
    frame = f'x="{LEFT - 16}" y="{y:g}" width="{BOX_WIDTH + 32}" height="{height:g}" rx="12"'
    parts = [
        f'<rect {frame} fill="none" stroke="{SOFT}" stroke-dasharray="5 4"/>',
        text(LEFT, y + 23, g.title, 14, SOFT),
    ]
    at = y + 34
    for i, b in enumerate(g.boxes):
        parts += box(b, at)
        if i + 1 < len(g.boxes):
            parts.append(arrow(LEFT + 40, at + BOX_HEIGHT, at + BOX_HEIGHT + GAP))
        at += BOX_HEIGHT + GAP
    return parts, y + height


def draw() -> str:
    """The picture as SVG."""
    parts: list[str] = []
    y, top = 14.0, 0.0
    for i, g in enumerate(STEP):
        drawn, end = group(g, y)
        parts += drawn
        top = top or y + 34 + BOX_HEIGHT / 2
        if i + 1 < len(STEP):
            parts.append(arrow(LEFT + 40, end, end + GAP))
            y = end + GAP
    last = y + 34 + BOX_HEIGHT / 2
    back = f"M{LEFT} {last:g}H32a12 12 0 0 1 -12 -12V{top + 12:g}a12 12 0 0 1 12 -12H{LEFT - 4}"
    parts.append(f'<path d="{back}" stroke="{SOFT}" stroke-width="2" fill="none" marker-end="url(#tip)"/>')
    middle = (top + last) / 2
    parts.append(
        text(
            14,
            middle,
            "the next episode, with the new weights",
            14,
            SOFT,
            f'text-anchor="middle" transform="rotate(-90 14 {middle:g})"',
        )
    )
    height = end + 14
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}" '
            'font-family="system-ui, sans-serif">',
            "<title>One episode of PPO, stage by stage, with the module that does each</title>",
            f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{SOFT}"/></marker></defs>',
            f'<rect width="100%" height="100%" fill="{PAPER}"/>',
            *parts,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    OUT.write_text(draw(), encoding="utf-8")
    print(OUT)
