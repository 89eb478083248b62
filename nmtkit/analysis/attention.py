"""The attention of a model in one sentence and its translation, and the views of it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nmtkit.analysis.attention_heads import (
    KIND_NAMES,
    Finding,
    View,
    Weights,
    alignment_scores,
    find_heads,
    largest_view,
)
from nmtkit.analysis.words import compute_words
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

if TYPE_CHECKING:
    from nmtkit.translator import Translator

VIEW_FORMAT = "KIND.LAYER[.HEAD[.WORD]]"


@dataclass(frozen=True)
class SentenceAttention:
    """All attention weights of a sentence and its translation."""

    bundle: str
    source: str
    target: str
    is_given: bool  # whether the user passed the translation, or the model wrote it
    words: dict[str, tuple[list[str], list[str]]]  # by kind: words of queries and of keys
    weights: dict[str, list[list[list[list[float]]]]]  # by kind: layer, head, query, key
    alignment: View  # the head that aligns most clearly, though not always clearly
    findings: list[Finding]

    def title(self, view: View) -> str:
        """Return the caption of a picture."""
        heads = "all heads" if view.head is None else f"head {view.head}"
        title = f"{KIND_NAMES[view.kind]}, layer {view.layer}, {heads}"
        if view.query is not None:
            queries, _ = self.words[view.kind]
            title += f", {queries[view.query - 1]}"
        return title


def compute_attention(
    translator: "Translator",
    bundle: Path,
    source: str,
    target: str | None,
    *,
    subwords: bool = False,
) -> SentenceAttention:
    """Compute all attention weights of a sentence and its translation.

    Args:
        translator: The loaded bundle, with the torch engine.
        target: Its translation; None to let the model translate.
        subwords: Keep the subwords as the model reads them, instead of joining them to words.

    Raises:
        UserError: The sentence is blank, or has too many subwords.
    """
    from nmtkit.decoding.forced import compute_attention_weights  # imports torch
    from nmtkit.decoding.torch_engine import TorchEngine

    engine = translator.engine
    if not isinstance(engine, TorchEngine):
        raise TypeError("attention needs the torch engine")
    # One pass over forced translation gives all weights; beam search keeps none.
    text = translator.text
    src_ids = text.encode(source)
    if not src_ids:
        raise UserError("SENTENCE is blank; pass a sentence with at least one word")
    is_given = target is not None
    if target is None:
        (translation,) = translator.translate([source])
        target = translation.text
        tgt_ids = []
        for segment in translation.tgt:
            tgt_ids += segment
    else:
        tgt_ids = text.encode_target(target)
    if max(len(src_ids), len(tgt_ids) + 1) > translator.max_subwords:
        raise UserError(
            f"SENTENCE has {len(src_ids):,} subwords and its translation {len(tgt_ids):,}, but "
            f"attention is drawn for at most {translator.max_subwords:,}; pass a shorter sentence"
        )

    layers_by_kind = compute_attention_weights(engine.models[0], src_ids, tgt_ids)

    # The decoder reads the translation shifted by one: BOS comes first, and EOS is never read.
    source_words = compute_words(text.subword, text.src, src_ids, subwords=subwords)
    decoder_inputs = compute_words(text.subword, text.tgt, [BOS_ID, *tgt_ids], subwords=subwords)
    decoder_outputs = compute_words(text.subword, text.tgt, [*tgt_ids, EOS_ID], subwords=subwords)
    words_by_kind = {
        "encoder": (source_words, source_words),
        "decoder": (decoder_inputs, decoder_inputs),
        "cross": (decoder_outputs, source_words),
    }
    words = {}
    weights = {}
    for kind, (queries, keys) in words_by_kind.items():
        words[kind] = ([word.text for word in queries], [word.text for word in keys])
        weights[kind] = merge_weights(
            layers_by_kind[kind].cpu().numpy().astype(np.float64),
            [word.n_subwords for word in queries],
            [word.n_subwords for word in keys],
        )
    source_texts, _ = words["encoder"]
    return SentenceAttention(
        bundle=str(bundle),
        source=source,
        target=target,
        is_given=is_given,
        words=words,
        weights={kind: layers.tolist() for kind, layers in weights.items()},
        alignment=largest_view("cross", alignment_scores(weights["cross"])),
        findings=find_heads(weights["encoder"], weights["cross"], source_texts, text.src.lang),
    )


def merge_weights(
    weights: Weights, query_lengths: Sequence[int], key_lengths: Sequence[int]
) -> Weights:
    """Compute the attention between words from that between subwords.

    A word receives the sum of the weights of its subwords, and pays the mean of their attention
    (Clark et al. 2019, section 4.1): the weights of a word sum to 1, too.

    Args:
        weights: Weights of subwords, (N, H, Lq, Lk).
        query_lengths: Numbers of subwords of the Wq words that attend; they sum to Lq.
        key_lengths: Numbers of subwords of the Wk words that are attended to; they sum to Lk.

    Returns:
        Weights of words, (N, H, Wq, Wk).
    """
    key_starts = np.cumsum([0, *key_lengths[:-1]])
    query_starts = np.cumsum([0, *query_lengths[:-1]])
    received = np.add.reduceat(weights, key_starts, axis=-1)  # (N, H, Lq, Wk)
    summed = np.add.reduceat(received, query_starts, axis=-2)  # (N, H, Wq, Wk)
    paid: Weights = summed / np.array(query_lengths)[:, None]
    return paid


# Views


def parse_view(attention: SentenceAttention, text: str) -> View:
    """Parse `KIND.LAYER[.HEAD[.WORD]]`, such as encoder.5.all.7.

    Args:
        attention: The attention that the view shows; it limits the numbers.
        text: The value of --view.

    Raises:
        UserError: The format is wrong, or the layer, head or word does not exist.
    """
    pattern = rf"({'|'.join(KIND_NAMES)})\.(\d+)(?:\.(\d+|all)(?:\.(\d+))?)?"
    match = re.fullmatch(pattern, text)
    if match is None:
        raise UserError(
            f"--view {quote(text)} is invalid; expected {VIEW_FORMAT}, such as cross.2.3 or "
            "encoder.5.all.7"
        )
    kind, layer, head, query = match.groups()
    # All layers of a kind have the same number of heads.
    layers = attention.weights[kind]
    queries, _ = attention.words[kind]
    layer_number = _number_in_range(text, "layer", layer, len(layers))
    assert layer_number is not None  # the pattern requires it
    return View(
        kind,
        layer_number,
        _number_in_range(text, "head", head, len(layers[0])),
        _number_in_range(text, "word", query, len(queries)),
    )


def _number_in_range(view: str, name: str, digits: str | None, maximum: int) -> int | None:
    """Return one number of a view; None if it is omitted, or "all".

    Args:
        view: The whole view, for the error.
        name: Name of the number: layer, head or word.
        digits: The number as the user typed it.
        maximum: The highest valid number.
    """
    if digits is None or digits == "all":
        return None
    number = int(digits)
    if not 1 <= number <= maximum:
        raise UserError(
            f"--view {quote(view)}: {name} {number:,} does not exist; pass a {name} from 1 to "
            f"{maximum:,}"
        )
    return number
