"""From source ids to target ids: batches of like length through beam search, in input order."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from nmtkit.decoding.beam_search import Hypothesis, beam_search
from nmtkit.errors import UserError
from nmtkit.model.incremental import IncrementalDecoder
from nmtkit.model.packing import Layout
from nmtkit.model.transformer import Transformer
from nmtkit.symbols import BOS_ID, EOS_ID, PAD_ID, UNK_ID

# Source tokens times beams of a batch. On a CPU 4,096 (about 50 sentences of 20 tokens, 4 beams)
# keep every matrix product busy; more is no faster, and needs more memory for logits.
BATCH_TOKENS = {"cpu": 4_096, "cuda": 131_072}


@torch.inference_mode()
def translate_ids(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    *,
    n_tokens: int,
    beam_size: int,
    length_penalty: float,
    max_extra_tokens: int,
    progress: Callable[[int], None],
) -> list[Hypothesis]:
    """Translate `sources`, ids with their end symbol: the best hypothesis of each, in their order.

    Args:
        n_tokens: size of the vocabulary; rows of the output matrix beyond it are never produced.
        max_extra_tokens: the longest output is the source's length (without its end symbol) + this
            (section 6.1).

    Raises:
        UserError: the model gives no probabilities.
    """
    model.eval()
    device = model.output_matrix.device
    not_text = [PAD_ID, BOS_ID, UNK_ID, *range(n_tokens, len(model.output_matrix))]
    forbidden = torch.tensor(not_text, device=device)
    best: list[Hypothesis | None] = [None] * len(sources)
    max_tokens = BATCH_TOKENS[device.type] // beam_size
    for numbers in _batches([len(source) for source in sources], max_tokens):
        src, layout = _packed([sources[i] for i in numbers], device)
        decoder = IncrementalDecoder(model, model.encode(src, layout), layout, forbidden)
        found = beam_search(
            decoder,
            layout.lengths - 1 + max_extra_tokens,
            beam_size=beam_size,
            length_penalty=length_penalty,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
        )
        for i, hypotheses in zip(numbers, found, strict=True):
            if not hypotheses:
                raise UserError(
                    "the model gives no probabilities (its weights are not numbers); its training "
                    "diverged, so lower [training] learning_rate_scale and train again"
                )
            best[i] = hypotheses[0]
        progress(len(numbers))
    return [hypothesis for hypothesis in best if hypothesis is not None]


def _batches(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Yield the numbers of sentences of like length, longest first.

    A batch has at most `max_tokens` tokens with padding, or one sentence.
    """
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > max_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _packed(sources: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Layout]:
    row = torch.tensor([token for source in sources for token in source], device=device)
    return row, Layout.of_lengths([len(source) for source in sources]).to(device)
