"""Translations that are drawn at random, token by token, as for back-translation.

Dimensions: B sentences in progress, V vocabulary.
"""

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from nmtkit.config.model import DecodingConfig
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID
from nmtkit.decoding.beam_search import StepModel
from nmtkit.decoding.engine import Hypothesis, Sampling, Sentences


def sample(
    model: StepModel,
    sources: Sentences,
    decoding: DecodingConfig,
    sampling: Sampling,
    device: torch.device,
) -> list[Hypothesis | None]:
    """Draw a translation of every sentence.

    Args:
        model: Predicts the next tokens of `sources`.
        sources: Ids of the sentences, with EOS. A sentence has a sequence of random numbers of its
            own, from its ids and the seed: what is drawn does not depend on the others.
        decoding: Maximum length, and length penalty for scores.
        device: The device of the model.

    Returns:
        The translations; None for a sentence if the model returns NaN.
    """
    generators = [_generator(source, sampling.seed, device) for source in sources]
    max_lengths = [decoding.max_target_length(len(source) - 1) for source in sources]
    drawn: list[list[int]] = [[] for _ in sources]
    log_probs = [0.0] * len(sources)
    results: list[Hypothesis | None] = [None] * len(sources)
    unfinished = list(range(len(sources)))  # indices into `sources`
    tokens = torch.full((len(sources), 1), BOS_ID, device=device)  # (B, 1)
    length = 0  # of all sentences in progress
    while unfinished:
        # The model returns its log-probabilities in parts.
        parts = []
        start = 0
        for part in model.step(tokens):
            sentences = unfinished[start : start + len(part)]
            start += len(part)
            must_end = [max_lengths[i] <= length for i in sentences]
            parts.append(_draw(part[:, 0], [generators[i] for i in sentences], must_end, sampling))
        tokens = torch.cat([part[0] for part in parts])[:, None]
        token_log_probs = torch.cat([part[1] for part in parts]).tolist()

        remaining = []  # places of sentences that do not end here
        for place, token in enumerate(tokens[:, 0].tolist()):
            i = unfinished[place]
            log_probs[i] += token_log_probs[place]
            if math.isnan(log_probs[i]):
                continue
            if token == EOS_ID:
                results[i] = Hypothesis.from_tokens(drawn[i], log_probs[i], decoding)
            else:
                drawn[i].append(token)
                remaining.append(place)
        if remaining and len(remaining) < len(unfinished):
            places = torch.tensor(remaining, device=device)
            tokens = tokens[places]
            model.reorder(places, torch.zeros_like(tokens))
        unfinished = [unfinished[place] for place in remaining]
        length += 1
    return results


def _generator(source: Sequence[int], seed: int, device: torch.device) -> torch.Generator:
    """Return the random numbers of a sentence: the same for the same ids and seed."""
    text = " ".join(map(str, (seed, *source)))
    digest = hashlib.sha256(text.encode("ascii")).digest()
    generator = torch.Generator(device)
    generator.manual_seed(int.from_bytes(digest[:7], "big"))
    return generator


def _draw(
    log_probs: Tensor,
    generators: Sequence[torch.Generator],
    must_end: Sequence[bool],
    sampling: Sampling,
) -> tuple[Tensor, Tensor]:
    """Draw the next token of a few sentences.

    Dividing probabilities by exponential random numbers and taking the largest quotient draws by
    these probabilities. Rounding can only change it where two quotients are nearly equal.

    Args:
        log_probs: Log-probabilities of the next tokens (b, V); -inf for tokens that are never
            produced.
        generators: The random numbers of every sentence.
        must_end: Whether only the EOS may follow, for every sentence.

    Returns:
        The tokens (b,), and their log-probabilities (b,).
    """
    logits = log_probs / sampling.temperature
    if sampling.top_k is not None and sampling.top_k < logits.shape[1]:
        least = logits.topk(sampling.top_k).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    noise = torch.empty_like(logits)
    for row, generator in zip(noise, generators, strict=True):
        row.exponential_(generator=generator)
    noise.clamp_(min=torch.finfo(noise.dtype).tiny)  # the logarithm of 0 is not finite
    tokens = (logits - noise.log()).argmax(1)
    tokens.masked_fill_(torch.tensor(must_end, device=tokens.device), EOS_ID)
    return tokens, log_probs.gather(1, tokens[:, None]).squeeze(1)
