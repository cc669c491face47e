"""`critic/explained_variance` is measured against what came of each token, whatever the critic's targets are."""

from statistics import fmean

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from trainer_harness import make_trainer

from rlvr.experience.metrics import summarise
from rlvr.experience.scoring import ModelScores
from rlvr.experience.verdicts import Verdicts
from rlvr.rollout.engine import Rollout
from rlvr.tracking.meter import Meter

pytestmark = pytest.mark.usefixtures("process")


def explained(
    values: list[list[float]], scores: list[float], cut: tuple[int, ...] = (), after: float = 0.0, **settings: object
) -> float:
    """The metric of one collect step: values of each token, the score of each response (NaN = no function applied). The
    responses of `cut` were ended by the length limit, in a state of value `after`."""
    trainer = make_trainer(kl_coef=0.0, initial_model=None, settings=settings)
    rows = [torch.tensor(row) for row in values]
    rollouts = [
        Rollout(torch.tensor([5]), torch.full((len(row),), 6), "length" if i in cut else "stop")
        for i, row in enumerate(rows)
    ]
    padded = pad_sequence(rows, batch_first=True)
    mask = pad_sequence([torch.ones(len(row), dtype=torch.bool) for row in rows], batch_first=True)
    zeros = torch.zeros_like(padded)
    read = ModelScores(zeros, None, None, padded, torch.full((len(rows),), after), mask)
    totals = torch.tensor(scores)
    scored = ~totals.isnan()
    verdicts = Verdicts(totals.nan_to_num(), scored, scored, scored)
    meter = Meter()
    trainer.maker.assemble(rollouts, read, verdicts, meter, {})
    return summarise(meter.means())["critic/explained_variance"]


def plainly(values: list[list[float]], returns: list[list[float]]) -> float:
    pairs = [(r, r - v) for vs, rs in zip(values, returns, strict=True) for v, r in zip(vs, rs, strict=True)]
    spread, residual = (fmean(x * x for x in part) - fmean(part) ** 2 for part in zip(*pairs, strict=True))
    return 1 - residual / spread


VALUES = [[0.9, 0.8, 0.7], [0.1, 0.2], [0.4, 0.6, 0.5, 0.3]]
SCORES = [1.0, 0.1, 1.0]


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_of_plain_returns_at_any_lambda(lam: float, gamma: float) -> None:
    """With targets that lean on the values themselves, a critic would be measured by its own opinion."""
    returns = [[s * gamma ** (len(v) - 1 - t) for t in range(len(v))] for v, s in zip(VALUES, SCORES, strict=True)]
    assert explained(VALUES, SCORES, lam=lam, gamma=gamma) == pytest.approx(plainly(VALUES, returns), abs=1e-5)


def test_a_critic_that_knows_nothing_explains_nothing_at_a_small_lambda() -> None:
    """Its values differ from response to response, stay the same within each, and have nothing to do with the scores."""
    draw = torch.Generator().manual_seed(0)
    levels, scores = torch.rand(200, generator=draw), torch.rand(200, generator=draw).round()
    assert explained([[v] * 20 for v in levels.tolist()], scores.tolist(), lam=0.8) < 0.0


def test_without_responses_that_no_function_applied_to() -> None:
    with_it = explained([*VALUES, [5.0, 5.0]], [*SCORES, float("nan")])
    assert with_it == pytest.approx(explained(VALUES, SCORES), abs=1e-5)


def test_a_cut_response_goes_on_where_its_value_says_so() -> None:
    returns = [[0.5 if i == 1 else s] * len(v) for i, (v, s) in enumerate(zip(VALUES, SCORES, strict=True))]
    found = explained(VALUES, SCORES, cut=(1,), after=0.5, truncated="bootstrap", lam=0.5)
    assert found == pytest.approx(plainly(VALUES, returns), abs=1e-5)
