"""Perplexity (Table 3), which is never a number of hundreds of digits."""

import math

# Beyond it, a model is so much worse than any guess that its perplexity tells nothing more.
MAX_PERPLEXITY = 1e9
MAX_EXPONENT = 700  # of a float


def perplexity_of(nll: float, n_tokens: int) -> float:
    """Return exp of the mean negative log-likelihood of tokens, at most `MAX_PERPLEXITY`.

    `nll` is summed over the tokens, in nats. Of NaN the perplexity is NaN, and of no tokens 1.
    """
    return min(math.exp(min(nll / max(1, n_tokens), MAX_EXPONENT)), MAX_PERPLEXITY)
