"""Perplexity (Table 3), without the libraries of the other metrics: training computes it too."""

import math

# Above this, the model is worse than guessing, and the number means nothing.
MAX_PERPLEXITY = 1e9
MAX_EXPONENT = 700  # of a float


def perplexity_from_nll(nll: float, n_tokens: int) -> float:
    """Return exp of the mean negative log-likelihood of tokens, limited to `MAX_PERPLEXITY`.

    Args:
        nll: Negative log-likelihood in nats, summed over the tokens. NaN gives NaN.
        n_tokens: Number of tokens. No tokens have perplexity 1.
    """
    return min(math.exp(min(nll / max(1, n_tokens), MAX_EXPONENT)), MAX_PERPLEXITY)
