"""Losses, gradients and advantages are those of TRL's own trainer, but where a difference is explained."""

from importlib.metadata import version

import pytest

pytest.importorskip("trl", reason="TRL, which losses are compared with, is not installed")
if version("trl") != "1.16.0":
    pytest.skip(f"losses are compared with TRL 1.16.0, and {version('trl')} is installed", allow_module_level=True)

from benchmarks.oracles import ADVANTAGES, VARIANTS, Row, Variant, compare, compare_advantages, compare_logprobs, table

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: v.name)
def test_loss_and_gradient_are_those_of_trl(variant: Variant, tmp_path) -> None:
    row = compare(variant, str(tmp_path))
    assert row.expected, row


def test_logprobs_entropies_and_advantages_are_those_of_trl(tmp_path) -> None:
    rows = [compare_logprobs(str(tmp_path)), *(compare_advantages(name, str(tmp_path)) for name in ADVANTAGES)]
    assert all(row.expected for row in rows), rows


def test_an_unexplained_difference_and_an_explanation_of_none_are_told() -> None:
    assert not Row("a", 1e-3, 0.0, "x").expected
    assert not Row("a", 0.0, 0.0, "x", "never seen").expected
    assert Row("a", 0.0, 1e-3, "x", "because").expected
    assert "a *" in table([Row("a", 0.0, 1e-3, "x", "because")])
