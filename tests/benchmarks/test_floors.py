"""What the floors count, against torch's own counter and against plain loops; and that the clock loses no time."""

import time
from types import SimpleNamespace

import pytest
import torch
from tiny_models import VOCAB, tiny_model
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.floors import (
    Cost,
    Iteration,
    Lengths,
    Limits,
    Shape,
    backward,
    costs,
    decode,
    distinct,
    forward,
    optimizer_step,
    prefill,
    recomputed,
)
from benchmarks.sides.phases import REST, PhaseClock, watch
from rlvr.models.actor import Actor
from rlvr.models.batch import collate
from rlvr.models.critic import Critic

TINY = Shape(vocabulary=VOCAB, hidden=16, intermediate=32, layers=2, heads=4, kv_heads=2, head_dim=4)
EQUAL = [Lengths(3, 5)] * 4
"""Equal rows, so that no product is wasted on padding."""


def batch(sequences):
    generator = torch.Generator().manual_seed(0)
    draw = [[torch.randint(VOCAB, (n,), generator=generator) for n in lengths[:2]] for lengths in sequences]
    return collate([p for p, _ in draw], [r for _, r in draw])


def tiny():
    model = tiny_model()
    model.set_attn_implementation("eager")  # products that the counter sees, over the whole square
    return model


def uncausal(cost, sequences):
    """With attention over the whole square, as the plain kernel makes it."""
    more = TINY.attention_flops(sum(s.tokens**2 - s.causal_pairs for s in sequences))
    return Cost(cost.layers + more, cost.head, cost.moved)


def counted(run):
    with FlopCounterMode(display=False) as counter:
        result = run()
    return counter.get_total_flops(), result


def test_parameters_are_those_of_the_model() -> None:
    backbone = tiny_model().base_model
    assert sum(p.numel() for p in backbone.parameters()) == TINY.parameters


def test_the_actors_passes_equal_torchs_count() -> None:
    actor, sequences = Actor(tiny()), batch(EQUAL)
    ahead = uncausal(forward(TINY, EQUAL, 4, "vocabulary"), EQUAL)
    got, out = counted(lambda: actor(sequences, with_entropy=False))
    assert got == ahead.flops
    got, _ = counted(lambda: out.logprobs.sum().backward())
    assert got == backward(TINY, ahead, 4).flops + recomputed(TINY, EQUAL).flops


def test_the_critics_passes_equal_torchs_count() -> None:
    critic, sequences = Critic(tiny().base_model), batch(EQUAL)
    ahead = uncausal(forward(TINY, EQUAL, 4, "value"), EQUAL)
    got, out = counted(lambda: critic(sequences))
    after_the_last = 2 * TINY.hidden * len(EQUAL)  # which bootstraps need, and learning does not
    assert got == ahead.flops + after_the_last
    got, _ = counted(lambda: out.values.sum().backward())
    assert got == backward(TINY, ahead, 4).flops


def test_generation_equals_torchs_count() -> None:
    """Prefill of two prompts and three further steps, with a cache."""
    from transformers import DynamicCache

    model, cache, sequences = tiny(), DynamicCache(), [Lengths(3, 4)] * 2
    ids = torch.zeros(2, 3, dtype=torch.long)
    with torch.no_grad():
        got, _ = counted(lambda: model(ids, past_key_values=cache, logits_to_keep=1))
        square = TINY.attention_flops(2 * (9 - 6))
        assert got == prefill(TINY, [3, 3], 4).flops + square
        steps = list(decode(TINY, sequences, 4))
        assert len(steps) == 3  # nothing follows the last token
        for step in steps:
            got, _ = counted(lambda: model(ids[:, :1], past_key_values=cache))
            assert got == step.flops


def test_bytes_of_generation() -> None:
    weights = TINY.layer_weights + TINY.head_weights
    one = 2 * 2 * 2 * 4  # keys and values, layers, heads, width of a head
    assert TINY.cache_bytes(1, 2) == 2 * one
    assert prefill(TINY, [3, 5], 2).moved == 2 * (weights + 8 * one)
    steps = list(decode(TINY, [Lengths(3, 3), Lengths(5, 2)], 2))
    # First step: 4 and 6 tokens are read, two of them written; second: the first response alone.
    assert [s.moved for s in steps] == [2 * (weights + (4 + 6 + 2) * one), 2 * (weights + (5 + 1) * one)]
    assert [s.head for s in steps] == [2 * 2 * TINY.head_weights, 2 * TINY.head_weights]


def test_an_optimizer_step_moves_weights_gradients_and_moments() -> None:
    assert optimizer_step(10, 4).moved == 10 * 4 * (1 + 4 + 3)  # norm; read g, p, m, v; write p, m, v
    assert optimizer_step(10, 2).moved == optimizer_step(10, 4).moved + 20
    assert optimizer_step(10, 2).flops == 0


def test_what_another_row_begins_with_too_is_seen_and_not_computed() -> None:
    row = Lengths(3, 5, known=2)
    assert row.tokens == 6
    assert row.causal_pairs == sum(range(3, 9))  # the third token sees three, the last one eight


def test_a_floor_is_the_slower_of_products_and_memory() -> None:
    limits = Limits({("many", "layer"): 10, ("many", "head"): 5, ("few", "layer"): 1, ("few", "head"): 1}, bandwidth=2)
    assert Cost(20, 10, 6).at(limits) == 4.0
    assert Cost(20, 10, 12).at(limits) == 6.0
    assert Cost(20, 10, 6, "few").at(limits) == 30.0


@pytest.mark.parametrize("critic", [True, False])
def test_an_iteration_has_the_phases_of_its_recipe(critic: bool) -> None:
    halves = [EQUAL[:2], EQUAL[2:]]
    work = Iteration(EQUAL, distinct([[1, 2, 3], [1, 2, 3]]), halves, critic, reference=critic, recompute=not critic)
    got = costs(TINY, work, 4)
    assert ("critic values" in got) == ("critic optimizer" in got) == ("reference logprobs" in got) == critic
    assert ("actor logprobs" in got) == (not critic)
    assert got["prefill"] == [prefill(TINY, [3], 4)]
    assert len(got["actor optimizer"]) == 2
    assert sum(c.flops for c in got["actor forward"]) == forward(TINY, EQUAL, 4, "vocabulary").flops
    assert sum(c.flops for c in got["actor backward"]) == 2 * forward(TINY, EQUAL, 4, "vocabulary").flops


def test_phases_within_phases_count_as_themselves() -> None:
    clock = PhaseClock()
    begin = time.perf_counter()
    with clock.phase("outer"):
        time.sleep(0.02)
        with clock.phase("inner"):
            time.sleep(0.03)
    clock.tick()
    whole = time.perf_counter() - begin
    assert clock.clock["inner"] >= 0.03 and 0.02 <= clock.clock["outer"] <= whole - 0.03
    assert sum(clock.clock.values()) >= 0.05
    assert set(clock.clock) == {"outer", "inner", REST}


@pytest.mark.usefixtures("process")
def test_the_clock_sees_every_phase_of_a_trainer() -> None:
    """A real iteration of the benchmark's kind: each phase that has a cost is timed."""
    from trainer_harness import loader, make_trainer

    trainer, clock = make_trainer(), PhaseClock()
    watch(trainer, clock)
    trainer.fit(1, 1, 1, loader())
    work = Iteration(EQUAL, [3], [EQUAL], critic=True, reference=True, recompute=True)
    assert set(costs(TINY, work, 4)) | {"drawing", REST} == set(clock.clock)


def test_gradients_decide_between_scoring_and_learning() -> None:
    role = SimpleNamespace(forward=lambda: None, backward=lambda: None, step=lambda: None)
    module = SimpleNamespace(register_forward_pre_hook=lambda *a, **k: None, register_forward_hook=lambda *a: None)
    role.unwrapped = SimpleNamespace(model=module)
    maker = SimpleNamespace(reference=None, engine=SimpleNamespace(stream=None))
    clock = PhaseClock()
    watch(SimpleNamespace(actor=role, critic=None, maker=maker), clock)
    with torch.no_grad():
        role.forward()
    assert "actor logprobs" in clock.clock and "actor forward" not in clock.clock
    role.forward()
    assert "actor forward" in clock.clock
