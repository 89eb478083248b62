"""Translation of token ids: beam search over batches of similar length."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from nmtkit.decoding.beam_search import beam_search
from nmtkit.decoding.engine import Hypothesis
from nmtkit.errors import UserError, is_out_of_memory
from nmtkit.model.incremental import IncrementalDecoder
from nmtkit.model.packing import Layout
from nmtkit.model.transformer import Transformer
from nmtkit.symbols import BOS_ID, EOS_ID, PAD_ID, UNK_ID

# Source tokens times beams in a batch. On a CPU, 4,096 (50 sentences of 20 tokens, with 4 beams)
# are enough for efficient matrix products. More would not be faster, but need more memory.
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
    n_best: int,
    progress: Callable[[int], None],
) -> list[list[Hypothesis]]:
    """Translate sentences by beam search.

    If a batch does not fit into memory, it and all later batches are halved.

    Args:
        model: The model.
        sources: The token ids of each sentence, with the EOS.
        n_tokens: Size of the vocabulary. Rows of the output matrix beyond it are never produced.
        beam_size: Number of beams per sentence.
        length_penalty: The paper's alpha.
        max_extra_tokens: Maximum length of a translation beyond that of its source, both without
            the EOS (section 6.1).
        n_best: Number of hypotheses to return, at most `beam_size`.
        progress: Called with the number of sentences after each batch.

    Returns:
        The hypotheses of each sentence, in input order, best first.

    Raises:
        UserError: The model does not produce probabilities, or a single sentence does not fit into
            memory.
    """
    model.eval()
    device = model.output_matrix.device
    not_text = [PAD_ID, BOS_ID, UNK_ID, *range(n_tokens, len(model.output_matrix))]
    forbidden = torch.tensor(not_text, device=device)

    def search(batch: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        src, layout = _packed(batch, device)
        return beam_search(
            IncrementalDecoder(model, model.encode(src, layout), layout, forbidden),
            layout.lengths - 1 + max_extra_tokens,
            beam_size=beam_size,
            length_penalty=length_penalty,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            n_best=n_best,
        )

    best: list[list[Hypothesis]] = [[]] * len(sources)
    by_length = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    max_tokens = BATCH_TOKENS[device.type] // beam_size  # in a batch, including padding
    n_done = 0
    while n_done < len(sources):
        longest = len(sources[by_length[n_done]])
        numbers = by_length[n_done : n_done + max(1, max_tokens // longest)]
        try:
            found = search([sources[i] for i in numbers])
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if len(numbers) == 1:
                raise UserError(
                    f"{device} has too little memory to translate {longest:,} tokens with "
                    f"beam_size = {beam_size:,}; free memory, or lower [decoding] beam_size"
                ) from None
            max_tokens = longest * len(numbers) // 2
            continue
        for i, hypotheses in zip(numbers, found, strict=True):
            if not hypotheses:
                raise UserError(
                    "the model produces NaN instead of probabilities: its training diverged; lower "
                    "[training] learning_rate_scale and train again"
                )
            best[i] = hypotheses
        n_done += len(numbers)
        progress(len(numbers))
    return best


def _packed(sources: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Layout]:
    row = torch.tensor([token for source in sources for token in source], device=device)
    return row, Layout.of_lengths([len(source) for source in sources]).to(device)
