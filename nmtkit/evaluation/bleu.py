"""BLEU as computed by sacreBLEU and as reported in the paper (Table 2).

The scores in the paper come from multi-bleu.perl on Moses tokens. Those of English-German (27.3 and
28.4) have compounds split at hyphens: compare `compound_split_bleu`. Those of English-French (38.1
and 41.0) do not: compare `tokenized_bleu`. sacreBLEU is one to two points lower than either.

Compounds are split as in tensor2tensor's get_ende_bleu.sh. It is two weeks younger than the code of
the paper (75f398d8, 2017-06-29, against 3d9c62f2), and its replacement of Unicode punctuation, in
hypotheses alone, is of 2018 (fc9335c0); `score_both_normalized` replaces it in references too.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU

from nmtkit.errors import UserError

MAX_ORDER = 4


@dataclass(frozen=True)
class Bleu:
    """A corpus score and its components. Score and precisions range from 0 to 100."""

    score: float
    precisions: tuple[float, ...]
    brevity_penalty: float
    hyp_len: int
    ref_len: int

    def __str__(self) -> str:
        """Return the output of multi-bleu.perl."""
        ratio = self.hyp_len / self.ref_len if self.ref_len else 0.0
        precisions = "/".join(f"{precision:.1f}" for precision in self.precisions)
        return (
            f"BLEU = {self.score:.2f}, {precisions} (BP={self.brevity_penalty:.3f}, "
            f"ratio={ratio:.3f}, hyp_len={self.hyp_len}, ref_len={self.ref_len})"
        )


@dataclass(frozen=True)
class SacreBleu(Bleu):
    """A sacreBLEU score with its signature.

    Args:
        signature: The sacreBLEU signature, with number and seed of the bootstrap resamples.
        confidence_interval: Lower and upper end of the 95 % confidence interval, as estimated by
            sacreBLEU: mean of the resamples plus/minus half the width of their central 95 %.
    """

    signature: str
    confidence_interval: tuple[float, float]


@dataclass(frozen=True)
class TextTools:
    """The Moses scripts for one language, as functions of a line.

    Args:
        lang: Language code.
        tokenize: tokenizer.perl, without `-a`.
        normalize_punctuation: normalize-punctuation.perl.
        replace_unicode_punctuation: replace-unicode-punctuation.perl.
    """

    lang: str
    tokenize: Callable[[str], str]
    normalize_punctuation: Callable[[str], str]
    replace_unicode_punctuation: Callable[[str], str]


def multi_bleu(hyps_tok: Sequence[str], refs_tok: Sequence[str]) -> Bleu:
    """Compute BLEU of tokenized text like multi-bleu.perl: one reference, no smoothing.

    As in the script, only ASCII spaces separate tokens.

    Raises:
        UserError: There are no lines, or the numbers of hypotheses and references differ.
    """
    _check_counts(hyps_tok, refs_tok)
    matches, totals = [0] * MAX_ORDER, [0] * MAX_ORDER
    hyp_len = ref_len = 0
    for hyp, ref in zip(hyps_tok, refs_tok, strict=True):
        hyp_tokens, ref_tokens = _tokens(hyp), _tokens(ref)
        hyp_len += len(hyp_tokens)
        ref_len += len(ref_tokens)
        for order in range(1, MAX_ORDER + 1):
            hyp_ngrams, ref_ngrams = _ngrams(hyp_tokens, order), _ngrams(ref_tokens, order)
            matches[order - 1] += (hyp_ngrams & ref_ngrams).total()
            totals[order - 1] += hyp_ngrams.total()
    precisions = [match / max(total, 1) for match, total in zip(matches, totals, strict=True)]
    brevity_penalty = math.exp(min(0.0, 1 - ref_len / hyp_len)) if hyp_len else 0.0
    score = brevity_penalty * math.prod(precisions) ** (1 / MAX_ORDER)
    percentages = tuple(100 * precision for precision in precisions)
    return Bleu(100 * score, percentages, brevity_penalty, hyp_len, ref_len)


def compound_split(tokens: str) -> str:
    """Split words at hyphens like get_ende_bleu.sh: "rich-text" to "rich ##AT##-##AT## text".

    As in the script, a match includes one byte on each side: "a-b-c" is split once, "a-ä-c" twice.
    """
    return _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", tokens.encode()).decode()


def sacre_bleu(
    hyps: Sequence[str],
    refs: Sequence[str],
    *,
    lowercase: bool = False,
    n_bootstrap: int = 1000,
) -> SacreBleu:
    """Compute sacreBLEU of plain text, with a confidence interval from `n_bootstrap` resamples.

    Raises:
        UserError: There are no lines, or the numbers of hypotheses and references differ.
    """
    _check_counts(hyps, refs)
    metric = BLEU(lowercase=lowercase, force=True)  # force: do not print warnings
    result = metric.corpus_score(hyps, [refs], n_bootstrap=n_bootstrap)
    mean, half_width = result._mean, result._ci
    return SacreBleu(
        score=result.score,
        precisions=tuple(result.precisions),
        brevity_penalty=result.bp,
        hyp_len=result.sys_len,
        ref_len=result.ref_len,
        signature=str(metric.get_signature()),
        confidence_interval=(mean - half_width, mean + half_width),
    )


def count_scores(
    hyps: Sequence[str],
    refs: Sequence[str],
    tools: TextTools,
    *,
    lowercase: bool = False,
    normalize_punctuation: bool = False,
) -> dict[str, dict[str, object]]:
    """Compute all three kinds of BLEU, each with a description of how it was computed.

    Args:
        hyps: Detokenized translations.
        refs: The references, as published.
        tools: The Moses scripts for the target language.
        lowercase: Lowercase both sides, for models of lowercased text.
        normalize_punctuation: Normalize punctuation on both sides for `tokenized_bleu`.

    Returns:
        `sacrebleu`, `tokenized_bleu` and `compound_split_bleu`, ready for JSON.

    Raises:
        UserError: There are no lines, or the numbers of hypotheses and references differ.
    """
    return {
        "sacrebleu": _sacrebleu(hyps, refs, lowercase),
        "tokenized_bleu": _tokenized_bleu(hyps, refs, tools, lowercase, normalize_punctuation),
        "compound_split_bleu": _compound_split_bleu(hyps, refs, tools, lowercase),
    }


def _sacrebleu(hyps: Sequence[str], refs: Sequence[str], lowercase: bool) -> dict[str, object]:
    bleu = sacre_bleu(hyps, refs, lowercase=lowercase)
    case = "lower-cased" if lowercase else "cased"
    return {
        **_parts(bleu, f"sacreBLEU over plain text, {case}, nothing normalized"),
        "signature": bleu.signature,
        "confidence_interval": [round(bound, 4) for bound in bleu.confidence_interval],
    }


def _tokenized_bleu(
    hyps: Sequence[str],
    refs: Sequence[str],
    tools: TextTools,
    lowercase: bool,
    normalize_punctuation: bool,
) -> dict[str, object]:
    def tokenize(line: str) -> str:
        if normalize_punctuation:
            line = tools.normalize_punctuation(line)
        if lowercase:
            line = line.lower()
        return tools.tokenize(line)

    bleu = multi_bleu([tokenize(hyp) for hyp in hyps], [tokenize(ref) for ref in refs])
    normalization = (
        f"normalize-punctuation.perl -l {tools.lang} on both sides"
        if normalize_punctuation
        else "nothing normalized"
    )
    case = "lower-cased before tokenization" if lowercase else "cased"
    how = f"multi-bleu.perl over tokenizer.perl -l {tools.lang}, {case}, {normalization}"
    return _parts(bleu, how)


def _compound_split_bleu(
    hyps: Sequence[str], refs: Sequence[str], tools: TextTools, lowercase: bool
) -> dict[str, object]:
    def split(line: str) -> str:
        return compound_split(tools.tokenize(line.lower() if lowercase else line))

    def normalized_split(line: str) -> str:
        return split(tools.replace_unicode_punctuation(line))

    split_hyps = [normalized_split(hyp) for hyp in hyps]
    bleu = multi_bleu(split_hyps, [split(ref) for ref in refs])
    both_normalized = multi_bleu(split_hyps, [normalized_split(ref) for ref in refs])
    case = "lower-cased before tokenization" if lowercase else "cased"
    how = (
        f"get_ende_bleu.sh: multi-bleu.perl over tokenizer.perl -l {tools.lang} with compounds "
        f"split at hyphens, {case}, replace-unicode-punctuation.perl on the hypothesis alone; "
        "score_both_normalized has it on the reference too"
    )
    return {**_parts(bleu, how), "score_both_normalized": round(both_normalized.score, 4)}


def _parts(bleu: Bleu, how: str) -> dict[str, object]:
    return {
        "score": round(bleu.score, 4),
        "how": how,
        "precisions": [round(precision, 4) for precision in bleu.precisions],
        "brevity_penalty": round(bleu.brevity_penalty, 4),
        "hyp_len": bleu.hyp_len,
        "ref_len": bleu.ref_len,
    }


_HYPHEN = re.compile(rb"(\S)-(\S)")


def _tokens(line: str) -> list[bytes]:
    """Split at ASCII spaces, like Perl on bytes: U+00A0 does not separate tokens."""
    return line.encode().split()


def _ngrams(tokens: list[bytes], order: int) -> Counter[tuple[bytes, ...]]:
    return Counter(zip(*(tokens[start:] for start in range(order)), strict=False))


def _check_counts(hyps: Sequence[str], refs: Sequence[str]) -> None:
    if len(hyps) != len(refs):
        raise UserError(
            f"BLEU needs one reference per hypothesis, but there are {len(hyps)} hypotheses and "
            f"{len(refs)} references; give two files of the same test set"
        )
    if not hyps:
        raise UserError("BLEU needs at least one line, but hypotheses and references are empty")
