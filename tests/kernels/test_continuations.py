"""The softmax over the vocabulary against torch in float64, continuations against a plain sort."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from nmtkit.decoding import beam_search
from nmtkit.kernels import library
from nmtkit.kernels.search import continuations, log_softmax

EOS = 2


@pytest.mark.usefixtures("kernels_or_torch")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n_tokens", [4, 16, 29, 64, 1_000, 9_792])
@pytest.mark.parametrize("scale", [0.1, 3.0, 40.0])
def test_log_probabilities_are_those_of_torch(
    dtype: torch.dtype, n_tokens: int, scale: float
) -> None:
    torch.manual_seed(n_tokens)
    logits = (torch.randn(7, n_tokens) * scale).to(dtype)
    logits[:, 1] = -torch.inf  # a row that fills up the output matrix
    expected = logits.double().log_softmax(-1)
    forbidden = torch.tensor([0, 3])
    expected[:, forbidden] = -torch.inf
    out = torch.full((7, n_tokens), torch.nan)
    log_softmax(logits, forbidden, out)
    torch.testing.assert_close(out.double(), expected, atol=1e-6, rtol=3e-7)
    if dtype == torch.float32:
        log_softmax(logits, forbidden, logits)
        assert torch.equal(logits, out)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 20, 28])
def test_a_row_with_a_logit_that_is_no_number_has_no_probabilities(
    wrong: float, place: int
) -> None:
    logits = torch.randn(2, 29)
    logits[1, place] = wrong
    out = torch.empty(2, 29)
    log_softmax(logits, torch.tensor([], dtype=torch.int64), out)
    assert out[0].isfinite().all()
    assert out[1].isnan().all()
    found = continuations(torch.zeros(1, 1), out[1].view(1, 1, 29), 3, None, EOS)
    assert found is not None
    assert (found[0] == -torch.inf).all()


def sorted_continuations(
    live: Tensor, log_probs: Tensor, n: int, must_end: Tensor
) -> list[list[tuple[float, int, int]]]:
    """The n best (log-probability, token, parent) of each sentence, without those of -inf."""
    best = []
    for of_beams, rows, ends in zip(live, log_probs, must_end, strict=True):
        totals = (of_beams[:, None] + rows).tolist()
        ranked = sorted(
            (-total, parent, token)
            for parent, of_tokens in enumerate(totals)
            for token, total in enumerate(of_tokens)
            if total > -math.inf and (token == EOS or not ends)
        )
        best.append([(-total, token, parent) for total, parent, token in ranked[:n]])
    return best


@pytest.mark.usefixtures("kernels")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    seed=st.integers(0, 2**32),
    n_sentences=st.integers(1, 3),
    n_beams=st.integers(1, 6),
    n_tokens=st.sampled_from([3, 16, 29, 128, 500]),
    n=st.sampled_from([1, 2, 8, 13]),
    step=st.sampled_from([0.0, 0.5]),
)
def test_continuations_are_the_first_of_all_sorted(
    seed: int, n_sentences: int, n_beams: int, n_tokens: int, n: int, step: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    live = -3 * torch.rand(n_sentences, n_beams, generator=generator)
    log_probs = -5 * torch.rand(n_sentences, n_beams, n_tokens, generator=generator)
    if step:  # many are equal
        live, log_probs = (step * (each / step).round() for each in (live, log_probs))
    live[torch.rand(live.shape, generator=generator) < 0.2] = -torch.inf
    log_probs[torch.rand(log_probs.shape, generator=generator) < 0.3] = -torch.inf
    must_end = torch.rand(n_sentences, generator=generator) < 0.3
    expected = sorted_continuations(live, log_probs, n, must_end)
    found = continuations(live, log_probs, n, must_end, EOS)
    assert found is not None
    ways = [found]
    if n >= n_beams:  # as in every search
        ways.append(beam_search._continuations(live, log_probs, n, must_end, EOS))
    for each in ways:
        rows = zip(*(column.tolist() for column in each), strict=True)
        assert [
            [one for one in zip(*row, strict=True) if one[0] > -math.inf] for row in rows
        ] == expected
    assert found[0].shape == (n_sentences, n)


@pytest.mark.usefixtures("kernels")
def test_tensors_need_not_be_contiguous() -> None:
    live, log_probs = -torch.rand(5, 3).t(), -torch.rand(4, 5, 3).permute(2, 1, 0)
    must_end = torch.tensor([True, False, False, True, True, False])[::2]
    expected = sorted_continuations(live, log_probs, 4, must_end)
    found = continuations(live, log_probs, 4, must_end, EOS)
    assert found is not None
    assert found[1].tolist() == [
        [token for _, token, _ in best] + [0] * (4 - len(best)) for best in expected
    ]


def test_there_are_no_continuations_without_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "library", lambda: None)
    assert continuations(torch.zeros(1, 1), torch.zeros(1, 1, 5), 2, None, EOS) is None
