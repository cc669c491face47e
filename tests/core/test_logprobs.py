"""Logprobs and entropies: right tokens, right gradients, float32, and no [N, V] tensor."""

import math
from typing import Any

import pytest
import reference
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rlvr.core.logprobs import chunked_logprobs, selected_logprobs
from rlvr.core.masked import mask_from_lengths

Head = dict[str, Any]
HEADS: dict[str, Head] = {
    "plain": {},
    "temperature": {"temperature": 0.7},
    "bias": {"bias": True},
    "softcap": {"softcap": 2.0},
    "everything": {"bias": True, "softcap": 3.0, "scale": 0.5, "temperature": 1.3},
}


def tensors(n: int, h: int, v: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Tensor, ...]:
    """hidden [n, h], weight [v, h], bias [v] (all with gradients) and targets [n]."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((n, h), (v, h), (v,))
    leaves = [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for s in shapes]
    return *leaves, torch.randint(v, (n,), generator=generator)


def options_of(head: Head, bias: Tensor) -> Head:
    return head | {"bias": bias} if head.get("bias") else head


def plain_logprobs(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The same with all logits at once, left to autograd."""
    z = F.linear(hidden, weight, bias).to(torch.promote_types(hidden.dtype, torch.float32)) * scale
    if softcap is not None:
        z = softcap * torch.tanh(z / softcap)
    logp = torch.log_softmax(z / temperature, dim=-1)
    return logp[torch.arange(len(targets)), targets], -(logp.exp() * logp).sum(-1)


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=4),
    left=st.booleans(),
    extra=st.integers(0, 2),
    temperature=st.sampled_from([1.0, 0.6, 1.7]),
)
def test_a1_a7_logprob_of_token_t_uses_the_logits_at_t_minus_1(
    seed: int, sizes: list[tuple[int, int]], left: bool, extra: int, temperature: float
) -> None:
    """A padded batch of logits, shifted by one, gives what the oracle reads off each unpadded sample."""
    vocabulary, generator = 5, torch.Generator().manual_seed(seed)
    lengths = [prompt + response for prompt, response in sizes]
    width = max(lengths) + extra
    logits = torch.full((len(sizes), width, vocabulary), math.nan, dtype=torch.float64)
    ids = torch.zeros(len(sizes), width, dtype=torch.long)
    is_response = torch.zeros(len(sizes), width, dtype=torch.bool)
    expected: list[float] = []
    entropies: list[float] = []
    for row, (prompt, response) in enumerate(sizes):
        length = prompt + response
        z = torch.randn(length, vocabulary, generator=generator, dtype=torch.float64)
        tokens = torch.randint(vocabulary, (length,), generator=generator)
        start = width - length if left else 0
        logits[row, start : start + length], ids[row, start : start + length] = z, tokens
        is_response[row, start + prompt : start + length] = True
        expected += reference.token_logprobs(z.tolist(), tokens.tolist(), prompt, temperature)
        entropies += reference.token_entropies(z.tolist(), tokens.tolist(), prompt, temperature)
    logprobs, entropy, _ = selected_logprobs(logits[:, :-1], ids[:, 1:], temperature)
    assert logprobs[is_response[:, 1:]].tolist() == pytest.approx(expected, abs=1e-12)
    assert entropy[is_response[:, 1:]].tolist() == pytest.approx(entropies, abs=1e-12)


def test_a3_words_excluded_from_sampling_cost_no_nan() -> None:
    """Logits of -infinity, as truncated sampling makes them: entropy over what is left, finite gradients."""
    logits = torch.tensor([[1.0, -math.inf, 2.0]], dtype=torch.float64, requires_grad=True)
    logprobs, entropy, _ = selected_logprobs(logits, torch.tensor([2]))
    left, left_entropy, _ = selected_logprobs(logits.detach()[:, [0, 2]], torch.tensor([1]))
    assert torch.allclose(logprobs, left) and torch.allclose(entropy, left_entropy)
    (gradient,) = torch.autograd.grad((logprobs + entropy).sum(), logits)
    assert torch.isfinite(gradient).all() and gradient[0, 1] == 0


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("chunk_tokens", [1, 3, 7, 100])
def test_a36_chunked_equals_plain_with_gradients(head: Head, chunk_tokens: int) -> None:
    hidden, weight, bias, targets = tensors(n=7, h=4, v=11)
    options = options_of(head, bias)
    leaves = [hidden, weight, *([bias] if head.get("bias") else [])]
    coefficients = torch.linspace(-1, 2, 14, dtype=torch.float64).view(2, 7)
    results = []
    for function in (plain_logprobs, chunked_logprobs):
        extra: Head = {"chunk_tokens": chunk_tokens} if function is chunked_logprobs else {}
        logprobs, entropy = function(hidden, weight, targets, **options, **extra)[:2]
        loss = (coefficients[0] * logprobs + coefficients[1] * entropy).sum()
        results.append([logprobs, entropy, *torch.autograd.grad(loss, leaves)])
    for plain, chunked in zip(*results, strict=True):
        assert torch.allclose(plain, chunked, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_a36_gradcheck(head: Head) -> None:
    hidden, weight, bias, targets = tensors(n=3, h=2, v=4)
    without_bias = {k: v for k, v in head.items() if k != "bias"}

    def function(*leaves: Tensor) -> tuple[Tensor, Tensor]:
        hidden, weight, *rest = leaves
        out = chunked_logprobs(hidden, weight, targets, bias=next(iter(rest), None), chunk_tokens=2, **without_bias)
        return out.logprobs, out.entropy

    assert torch.autograd.gradcheck(function, (hidden, weight, *([bias] if head.get("bias") else [])))


@pytest.mark.parametrize("which", ["logprobs", "entropy"])
def test_a36_gradient_of_either_result_alone(which: str) -> None:
    hidden, weight, _, targets = tensors(n=5, h=3, v=6)
    index = ["logprobs", "entropy"].index(which)
    gradients = []
    for logprobs_and_entropy in (plain_logprobs(hidden, weight, targets), chunked_logprobs(hidden, weight, targets)):
        gradients.append(torch.autograd.grad(logprobs_and_entropy[index].sum(), [hidden, weight]))
    for plain, chunked in zip(*gradients, strict=True):
        assert torch.allclose(plain, chunked, atol=1e-12)


def test_a36_frozen_head_or_frozen_states() -> None:
    hidden, weight, _, targets = tensors(n=5, h=3, v=6)
    expected = torch.autograd.grad(plain_logprobs(hidden, weight, targets)[0].sum(), [hidden, weight])
    only_hidden = chunked_logprobs(hidden, weight.detach(), targets)[0].sum()
    only_weight = chunked_logprobs(hidden.detach(), weight, targets)[0].sum()
    assert torch.allclose(torch.autograd.grad(only_hidden, hidden)[0], expected[0])
    assert torch.allclose(torch.autograd.grad(only_weight, weight)[0], expected[1])


def test_without_entropy_it_is_zero_and_logprobs_are_the_same() -> None:
    hidden, weight, _, targets = tensors(n=5, h=3, v=6)
    logprobs, entropy, _ = chunked_logprobs(hidden, weight, targets, with_entropy=False)
    assert torch.equal(logprobs, chunked_logprobs(hidden, weight, targets)[0])
    assert not entropy.any() and not entropy.requires_grad
    logprobs.sum().backward()
    assert hidden.grad is not None


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("chunk_tokens", [1, 3, 100])
def test_squared_probabilities_are_those_of_the_logits_and_change_nothing_else(head: Head, chunk_tokens: int) -> None:
    hidden, weight, bias, targets = tensors(n=7, h=4, v=11)
    options = options_of(head, bias)
    plain = chunked_logprobs(hidden, weight, targets, **options, chunk_tokens=chunk_tokens)
    found = chunked_logprobs(hidden, weight, targets, **options, chunk_tokens=chunk_tokens, with_squared_probs=True)
    assert plain.squared_probs is None and found.squared_probs is not None
    assert torch.equal(plain.logprobs, found.logprobs) and torch.equal(plain.entropy, found.entropy)
    # The logprob of each word in turn gives all probabilities.
    words = [plain_logprobs(hidden, weight, torch.full((7,), v), **options)[0] for v in range(11)]
    want = torch.stack(words).exp().square().sum(0)
    assert torch.allclose(found.squared_probs, want, atol=1e-12) and not found.squared_probs.requires_grad
    gradients = [torch.autograd.grad(out.logprobs.sum() + out.entropy.sum(), hidden)[0] for out in (plain, found)]
    assert torch.equal(*gradients)


def test_squared_probabilities_of_given_logits_with_words_left_out() -> None:
    logits = torch.tensor([[0.0, -math.inf, 0.0], [math.log(3.0), 0.0, -math.inf]])
    out = selected_logprobs(logits, torch.tensor([0, 1]), with_squared_probs=True)
    assert out.squared_probs is not None
    assert out.squared_probs.tolist() == pytest.approx([0.5, 0.75**2 + 0.25**2])


class LargestTensor(TorchDispatchMode):
    """Notes the largest number of elements of any tensor that an operation returns."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for item in out if isinstance(out, tuple | list) else [out]:
            if isinstance(item, Tensor):
                self.elements = max(self.elements, item.numel())
        return out


def test_a36_no_tensor_of_all_logits_is_kept_or_ever_made() -> None:
    n, h, v, chunk = 512, 8, 256, 32
    hidden, weight, bias, targets = tensors(n, h, v, torch.float32)
    kept: list[int] = []

    def note(x: Tensor) -> Tensor:
        kept.append(x.numel())
        return x

    with LargestTensor() as made:
        with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            logprobs, entropy, _ = chunked_logprobs(
                hidden, weight, targets, bias=bias, softcap=5.0, scale=0.5, temperature=0.9, chunk_tokens=chunk,
                with_squared_probs=True,
            )  # fmt: skip
        (logprobs.sum() + entropy.sum()).backward()
    assert sum(kept) == n * h + v * h + v + n + n, "hidden, weight, bias, targets and entropies, nothing else"
    assert made.elements == chunk * v, "a chunk of logits is the largest tensor that exists"


def test_a25_no_tokens_give_empty_results_and_zero_gradients() -> None:
    hidden, weight, bias, targets = tensors(n=0, h=3, v=6, dtype=torch.float32)
    logprobs, entropy, _ = chunked_logprobs(hidden, weight, targets, bias=bias)
    assert logprobs.shape == entropy.shape == (0,)
    (logprobs.sum() + entropy.sum()).backward()
    assert hidden.grad is not None and hidden.grad.shape == (0, 3)
    assert weight.grad is not None and not weight.grad.any()
    assert bias.grad is not None and not bias.grad.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a37_log_softmax_is_float32_under_low_precision(dtype: torch.dtype) -> None:
    """From the same low-precision logits both give float32 results; in bfloat16 itself they would be off by 1 %."""
    hidden, weight, _, targets = tensors(n=16, h=8, v=64, dtype=dtype)
    logits = F.linear(hidden, weight).detach()
    exact, exact_entropy, _ = selected_logprobs(logits.double(), targets)
    for logprobs, entropy, _ in (selected_logprobs(logits, targets), chunked_logprobs(hidden, weight, targets)):
        assert logprobs.dtype == entropy.dtype == torch.float32
        assert torch.allclose(logprobs.double(), exact, atol=1e-5)
        assert torch.allclose(entropy.double(), exact_entropy, atol=1e-5)


def test_a37_weight_gradient_under_bfloat16_is_summed_over_chunks_in_float32() -> None:
    """256 chunks add up to one rounding of the exact sum, not to 256 roundings."""
    hidden, weight, _, targets = tensors(n=256, h=4, v=8, dtype=torch.bfloat16)
    gradients = []
    for chunk_tokens in (1, 256):
        logprobs, _, _ = chunked_logprobs(hidden, weight, targets, chunk_tokens=chunk_tokens)
        gradients.append(torch.autograd.grad(logprobs.sum(), weight)[0].double())
    exact = torch.autograd.grad(
        chunked_logprobs(hidden.double(), weight.double(), targets)[0].sum(), weight, retain_graph=False
    )[0].double()
    scale = exact.abs().max()
    assert (gradients[0] - exact).abs().max() < 0.01 * scale
    assert (gradients[1] - exact).abs().max() < 0.01 * scale


def test_a37_autocast_is_the_same_in_forward_and_backward() -> None:
    hidden, weight, _, targets = tensors(n=6, h=4, v=9, dtype=torch.float32)
    gradients = []
    for function in (plain_logprobs, chunked_logprobs):
        with torch.autocast("cpu", torch.bfloat16):
            logprobs, entropy = function(hidden, weight, targets)[:2]
        assert logprobs.dtype == torch.float32
        gradients.append([logprobs, *torch.autograd.grad((logprobs + entropy).sum(), [hidden, weight])])
    for plain, chunked in zip(*gradients, strict=True):
        assert plain.dtype == chunked.dtype == torch.float32
        assert torch.allclose(plain, chunked, rtol=2e-2, atol=2e-2)


def test_a37_under_autocast_the_backward_pass_sees_what_the_forward_pass_multiplied() -> None:
    """Backward passes run outside autocast: float32 inputs kept there would be projected again in another precision."""
    hidden, weight, _, targets = tensors(n=6, h=4, v=9, dtype=torch.float32)
    kept: dict[tuple[int, ...], torch.dtype] = {}

    def note(x: Tensor) -> Tensor:
        kept[tuple(x.shape)] = x.dtype
        return x

    with torch.autocast("cpu", torch.bfloat16), torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        chunked_logprobs(hidden, weight, targets)
    assert kept[6, 4] == kept[9, 4] == torch.bfloat16


def test_a2_temperature_divides_the_logits() -> None:
    logits = torch.randn(4, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = torch.arange(4)
    for result, expected in zip(
        selected_logprobs(logits, targets, 0.5)[:2], selected_logprobs(2.0 * logits, targets)[:2], strict=True
    ):
        assert torch.allclose(result, expected)


def test_a31_entropy_of_large_logits_is_exact() -> None:
    logits = torch.tensor([[1e4, 1e4, 1e4 - 1]])
    _, entropy, _ = selected_logprobs(logits, torch.tensor([0]))
    assert entropy.item() == pytest.approx(reference.entropy([0.0, 0.0, -1.0]), abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"temperature": 0.0}, "temperature"), ({"softcap": -1.0}, "softcap"), ({"chunk_tokens": 0}, "chunk_tokens")],
)
def test_impossible_settings_are_refused(options: Head, message: str) -> None:
    hidden, weight, _, targets = tensors(n=2, h=2, v=3)
    with pytest.raises(ValueError, match=message):
        chunked_logprobs(hidden, weight, targets, **options)


def test_a7_only_tokens_of_the_mask_are_projected() -> None:
    """The way from a padded batch to N tokens and back: the mask picks rows, so the padding cannot matter."""
    hidden, weight, _, targets = tensors(n=12, h=3, v=5)
    mask = mask_from_lengths(torch.tensor([4, 1, 0]), 4)
    states = torch.where(mask[..., None], hidden.view(3, 4, 3), math.nan)
    logprobs, _, _ = chunked_logprobs(states[mask], weight, targets.view(3, 4)[mask])
    expected, _ = plain_logprobs(hidden.view(3, 4, 3)[mask], weight, targets.view(3, 4)[mask])
    assert torch.allclose(logprobs, expected)
    (gradient,) = torch.autograd.grad(logprobs.sum(), hidden)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("autocast", [False, True])
def test_a37_a_float32_head_multiplies_in_float32(autocast: bool) -> None:
    """States and weights of bf16: the product, and the gradients up to their last rounding, are those of float32."""
    hidden, weight, bias, targets = tensors(9, 64, 33, torch.bfloat16)
    exact = [x.detach().float().requires_grad_() for x in (hidden, weight, bias)]
    expected, _ = plain_logprobs(exact[0], exact[1], targets, exact[2])
    wanted = torch.autograd.grad(expected.sum(), exact)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        rounded, _, _ = chunked_logprobs(hidden, weight, targets, bias=bias)
        logprobs, _, _ = chunked_logprobs(hidden, weight, targets, bias=bias, float32=True, chunk_tokens=4)
    torch.testing.assert_close(logprobs, expected, atol=1e-5, rtol=1e-5)
    assert (rounded - expected).abs().max() > 1e-3, "what the head is for"
    for gradient, want in zip(torch.autograd.grad(logprobs.sum(), (hidden, weight, bias)), wanted, strict=True):
        assert gradient.dtype == torch.bfloat16
        torch.testing.assert_close(gradient.float(), want, atol=2e-2, rtol=1e-2)
