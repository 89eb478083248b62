"""attention: what a bundle's model attends to in a sentence and its translation."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from nmtkit.decoding.forced import Attended, attended
from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.errors import UserError, shown
from nmtkit.languages import Language
from nmtkit.reporting.attention import NAMES, AttentionPicture, Finding, Kind, View
from nmtkit.sources.kinds import read_plain
from nmtkit.symbols import BOS_ID, EOS_ID
from nmtkit.translator import Translator

FAR = 4  # tokens between two words: a long distance
# Words that stand for another one, of the languages that tests and recipes have.
PRONOUNS = {
    "en": "he she it they him her them his its their hers theirs himself herself itself themselves",
    "de": "er sie es ihn ihm ihr ihnen ihre ihren ihrem ihrer sein seine seinen seinem seiner",
    "fr": "il elle ils elles le la les lui leur leurs son sa ses",
}


def line_of(path: Path, number: int) -> str:
    """Return a line of a file, counted from 1.

    Raises:
        UserError: The file has no such line.
    """
    for line in islice(read_plain(path), number - 1, number):
        return line
    raise UserError(f"{path} has no line {number:,}; give another --line")


def picture_of(
    translator: Translator, bundle: Path, source: str, target: str | None
) -> AttentionPicture:
    """Translate a sentence, or take its translation, and look at all attention.

    Args:
        translator: A bundle that torch runs.
        bundle: Its folder.
        source: The sentence.
        target: Its translation; None for the model's own.

    Raises:
        UserError: The sentence is blank, or one of the two is too long.
    """
    text, engine = translator.text, translator.engine
    assert isinstance(engine, TorchEngine)
    src = text.encode(source)
    if not src:
        raise UserError("the sentence is blank; give one with a word")
    is_given = target is not None
    if target is None:
        (translation,) = translator.translate([source])
        target, tgt = translation.text, [id_ for ids in translation.tgt for id_ in ids]
    else:
        tgt = text.encode_target(target)
    if max(len(src), len(tgt) + 1) > translator.max_subwords:
        raise UserError(
            f"the sentence has {len(src):,} subwords and its translation {len(tgt):,}; at most "
            f"{translator.max_subwords:,} can be shown"
        )
    found = attended(engine.models[0], src, tgt)
    pieces = text.subword.pieces
    return AttentionPicture(
        bundle=str(bundle),
        source=source,
        target=target,
        is_given=is_given,
        src=pieces(src),
        tgt_in=pieces([BOS_ID, *tgt]),
        tgt_out=pieces([*tgt, EOS_ID]),
        weights={
            "encoder": found.encoder.tolist(),
            "decoder": found.decoder.tolist(),
            "cross": found.cross.tolist(),
        },
        findings=findings(found, pieces(src), text.src.lang),
    )


def view_of(picture: AttentionPicture, name: str) -> View:
    """Read `KIND.LAYER`, `KIND.LAYER.HEAD` or `KIND.LAYER.HEAD.WORD`, such as encoder.5.all.7.

    Raises:
        UserError: It is something else, or the model or the sentence has no such layer, head or
            word.
    """
    kind, *rest = name.split(".")
    numbers = [None if each == "all" else int(each) if each.isdecimal() else 0 for each in rest]
    form = "KIND.LAYER[.HEAD[.WORD]], such as encoder.5, cross.2.3 or encoder.5.all.7"
    if kind not in NAMES or not 1 <= len(numbers) <= 3 or numbers[0] is None:
        raise UserError(f"--show {shown(name)} is not understood; write {form}")
    layers = picture.weights[kind]
    most = [len(layers), len(layers[0]), len(picture.words(kind)[0])]
    for what, number, highest in zip(("layer", "head", "word"), numbers, most, strict=False):
        if number is not None and not 1 <= number <= highest:
            raise UserError(
                f"--show {shown(name)}: there are {what}s 1 to {highest:,} here; write {form}"
            )
    layer, head, query = (*numbers, None, None)[:3]
    assert layer is not None
    return View(kind=kind, layer=layer, head=head, query=query)


# Heads that show something


def findings(found: Attended, src: Sequence[str], lang: str) -> list[Finding]:
    """Find the heads that the paper shows, and some more, each by a measure.

    Args:
        found: The weights.
        src: The tokens of the sentence, with the EOS.
        lang: Its language.
    """
    # Of a weight, what is more than its key gets from all words on average: a head in which all
    # words look at the same one tells nothing about the sentence.
    specific = (found.encoder - found.encoder.mean(-2, keepdim=True)).clamp(min=0.0)
    candidates = (
        *_alignments(found.cross),
        _long_distance(specific, src),
        _anaphora(specific, src, lang),
        _structure(specific),
        _next_to(found.encoder),
        _end(found.encoder),
    )
    return [finding for finding in candidates if finding is not None]


def _alignments(cross: Tensor) -> list[Finding | None]:
    """Find a head of the upper layers, which look for the next word, and one of the lower ones.

    In the model of `multi30k-en-de`, the latter follows the word that the decoder has just read.
    """
    n_layers, _, n_tgt, n_src = cross.shape
    if n_layers < 2 or n_tgt < 2 or n_src < 2:
        return [None]
    sharpness = cross[:, :, :-1, :-1].amax(-1).mean(-1)
    measure = "mean over the words of the largest weight on a source word, in the {} layers"
    lower = n_layers // 2
    return [
        _of_heads("alignment", measure.format("upper"), "cross", sharpness[lower:], lower),
        _of_heads("reading along", measure.format("lower"), "cross", sharpness[:lower]),
    ]


def _long_distance(specific: Tensor, src: Sequence[str]) -> Finding | None:
    """Figure 3: one word and all heads of its layer."""
    places = torch.arange(len(src))
    is_far = (places - places[:, None]).abs() > FAR
    return _of_weights(
        "long distance",
        f"the largest specific weight between two words with {FAR} or more tokens between them",
        specific * (_between_words(src) & is_far),
        all_heads=True,
    )


def _anaphora(specific: Tensor, src: Sequence[str], lang: str) -> Finding | None:
    """Figure 4: what a pronoun looks at."""
    language = Language.named(lang)
    known = PRONOUNS.get(language.code if language else "", "").split()
    is_pronoun = torch.tensor([_bare(token) in known for token in src])
    is_earlier = torch.ones(len(src), len(src), dtype=torch.bool).tril(-2)
    return _of_weights(
        "anaphora",
        "the largest specific weight of a pronoun on an earlier word that is not next to it",
        specific * (is_pronoun[:, None] & is_earlier & _between_words(src)),
        all_heads=False,
    )


def _structure(specific: Tensor) -> Finding | None:
    """Figure 5: a head whose words look at different places, as structure has it."""
    n = specific.shape[-1] - 1  # without the EOS
    if n < 3:
        return None
    others = specific[..., :n, :n] * ~torch.eye(n, dtype=torch.bool)
    sharpness = others.amax(-1).mean(-1)
    distances = [others.diagonal(k, -2, -1).sum(-1) / n for k in range(1 - n, n) if k]
    return _of_heads(
        "structure",
        "mean over the words of the largest specific weight on another word, less that at the one "
        "distance that the head prefers",
        "encoder",
        sharpness - torch.stack(distances).amax(0),
    )


def _next_to(encoder: Tensor) -> Finding | None:
    n = encoder.shape[-1] - 1
    if n < 2:
        return None
    words = encoder[..., :n, :n]
    before, after = (words.diagonal(k, -2, -1).mean(-1) for k in (-1, 1))
    side, at = ("before", before) if before.amax() > after.amax() else ("after", after)
    return _of_heads(
        f"the word {side}", f"mean weight of the words on the one {side} them", "encoder", at
    )


def _end(encoder: Tensor) -> Finding | None:
    if encoder.shape[-1] < 2:
        return None
    return _of_heads(
        "the end symbol",
        "mean weight of the words on the end symbol",
        "encoder",
        encoder[..., :-1, -1].mean(-1),
    )


def _of_heads(name: str, measure: str, kind: Kind, values: Tensor, first: int = 0) -> Finding:
    """Return the head with the largest of the `values` (N, H) of the layers from `first` on."""
    layer, head = divmod(int(values.argmax()), values.shape[1])
    view = View(kind=kind, layer=first + layer + 1, head=head + 1)
    return Finding(name=name, measure=measure, value=float(values.max()), view=view)


def _of_weights(name: str, measure: str, weights: Tensor, *, all_heads: bool) -> Finding | None:
    """Return the query of the largest of the encoder's `weights` (N, H, L, L), if there is any."""
    if not weights.any():
        return None
    layer, head, query, _ = (int(i) for i in torch.unravel_index(weights.argmax(), weights.shape))
    view = View(
        kind="encoder", layer=layer + 1, head=None if all_heads else head + 1, query=query + 1
    )
    return Finding(name=name, measure=measure, value=float(weights.max()), view=view)


def _between_words(tokens: Sequence[str]) -> Tensor:
    """Return (L, L): True between two tokens with a letter or a digit; the EOS has none."""
    is_word = torch.tensor([any(map(str.isalnum, token)) for token in tokens])
    is_word[-1] = False
    return is_word & is_word[:, None]


def _bare(token: str) -> str:
    return token.removeprefix("▁").lower()
