"""The benchmark of critics on a policy that stands still: what there is to foretell."""

import pytest
import torch

from benchmarks import critic_offline
from benchmarks.critic_offline import Response


def test_what_problem_and_style_explain() -> None:
    def response(text: str, score: float) -> Response:
        return Response(torch.tensor([5]), torch.tensor([6]), text, score)

    blurted, worked = "<think></think>", "<think>1+1=2</think>"
    by_style = [[response(blurted, 0.0), response(worked, 1.0)] for _ in range(3)]
    assert critic_offline.of_style([r for group in by_style for r in group]) == pytest.approx(1.0)
    assert critic_offline.of_problem(by_style) <= 0.0
    by_problem = [[response(blurted, score), response(worked, score)] for score in (0.0, 1.0)]
    assert critic_offline.of_problem(by_problem) == pytest.approx(1.0)
    assert critic_offline.of_style([r for group in by_problem for r in group]) == pytest.approx(0.0)
