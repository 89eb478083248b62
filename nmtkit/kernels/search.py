"""The softmax over the vocabulary, and the most probable continuations of a sentence's beams.

Dimensions: B sentences, W beams, R rows of V logits, n continuations.
"""

import torch
from torch import Tensor

from nmtkit.kernels.library import kernel_for


def log_softmax(logits: Tensor, forbidden: Tensor, out: Tensor) -> None:
    """Compute log-probabilities in float32.

    Args:
        logits: (R, V), contiguous.
        forbidden: Tokens whose log-probabilities become -inf, int64; those of others stay.
        out: Where to write them (R, V), contiguous. It may be `logits`.
    """
    kernel = kernel_for("log_softmax", logits)
    if kernel is None:
        torch.log_softmax(logits, -1, dtype=torch.float32, out=out)
        out.index_fill_(-1, forbidden, -torch.inf)
        return
    assert logits.is_contiguous()
    assert out.is_contiguous()
    n_rows, n_tokens = logits.shape
    kernel(
        logits.data_ptr(), out.data_ptr(), n_rows, n_tokens, forbidden.data_ptr(), len(forbidden)
    )


def continuations(
    live: Tensor, log_probs: Tensor, n: int, must_end: Tensor | None, eos_id: int
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the `n` most probable continuations of each sentence, or None without a kernel.

    Args:
        live: Log-probabilities of the beams (B, W), float32.
        log_probs: Log-probabilities of the next token (B, W, V), float32.
        n: How many to return.
        must_end: Sentences where only the EOS may follow (B,); None if there are none.
        eos_id: Id of the EOS.

    Returns:
        Log-probabilities, tokens and parents, which are beams: (B, n) each, best first; of equal
        ones, those of the first beam and then of the first token. Empty slots have -inf.
    """
    kernel = kernel_for("continuations", log_probs)
    if kernel is None:
        return None
    # The kernel reads addresses: these names keep the tensors alive.
    live, log_probs = live.contiguous(), log_probs.contiguous()
    ends = None if must_end is None else must_end.contiguous()
    n_sentences, n_beams, n_tokens = log_probs.shape
    assert 0 <= eos_id < n_tokens
    values = torch.empty(n_sentences, n)
    tokens = torch.empty(n_sentences, n, dtype=torch.int64)
    parents = torch.empty_like(tokens)
    kernel(
        live.data_ptr(),
        log_probs.data_ptr(),
        0 if ends is None else ends.data_ptr(),
        eos_id,
        n,
        n_sentences,
        n_beams,
        n_tokens,
        values.data_ptr(),
        tokens.data_ptr(),
        parents.data_ptr(),
    )
    return values, tokens, parents
