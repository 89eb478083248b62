"""BLEU as computed by sacreBLEU and as reported in the paper (Table 2).

The paper does not say how its scores are counted. tensor2tensor's get_ende_bleu.sh, two weeks
younger than the code of the paper (75f398d8, 2017-06-29, against 3d9c62f2), splits compounds at
hyphens: `compound_split_bleu`. Its replacement of Unicode punctuation, in hypotheses alone, is of
2018 (fc9335c0); `score_both_normalized` replaces it in references too.

newstest2014 quotes in German with both „ “ and ". tensor2tensor#317 says that the published scores
need a reference that has " throughout, as the one that was published with the checkpoints had. So
`score_quotes_replaced` is the figure to compare with 27.3 and 28.4: the script of June 2017, with
those marks replaced on both sides. What 38.1, 41.0 and 41.8 of English-French are comparable with,
nothing says.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_

from sacrebleu.metrics.bleu import BLEU

from nmtkit.errors import UserError
from nmtkit.evaluation.seed import seed
from nmtkit.languages import Language

MAX_ORDER = 4
QUOTES = "„“”"  # the double marks of newstest2014 in German, and the one that closes English ones
_STRAIGHT = str.maketrans(dict.fromkeys(QUOTES, '"'))


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
        lang: The language.
        tokenize: tokenizer.perl, without `-a`.
        normalize_punctuation: normalize-punctuation.perl.
        replace_unicode_punctuation: replace-unicode-punctuation.perl.
    """

    lang: Language
    tokenize: Callable[[str], str]
    normalize_punctuation: Callable[[str], str]
    replace_unicode_punctuation: Callable[[str], str]


def multi_bleu(hyps_tok: Sequence[str], *references_tok: Sequence[str]) -> Bleu:
    """Compute BLEU of tokenized text like multi-bleu.perl, without smoothing.

    As in the script, only ASCII spaces separate tokens. Of several references, an n-gram may match
    as often as it occurs in any one of them, and the length that counts is the closest one.

    Raises:
        UserError: There are no lines, or the numbers of hypotheses and references differ.
    """
    _check_counts(hyps_tok, *references_tok)
    matches, totals = [0] * MAX_ORDER, [0] * MAX_ORDER
    hyp_len = ref_len = 0
    for hyp, *refs in zip(hyps_tok, *references_tok, strict=True):
        hyp_tokens, refs_tokens = _tokens(hyp), [_tokens(ref) for ref in refs]
        hyp_len += len(hyp_tokens)
        ref_len += _closest(len(hyp_tokens), map(len, refs_tokens))
        for order in range(1, MAX_ORDER + 1):
            hyp_ngrams = _ngrams(hyp_tokens, order)
            most = reduce(or_, (_ngrams(ref_tokens, order) for ref_tokens in refs_tokens))
            matches[order - 1] += (hyp_ngrams & most).total()
            totals[order - 1] += hyp_ngrams.total()
    precisions = [match / max(total, 1) for match, total in zip(matches, totals, strict=True)]
    brevity_penalty = math.exp(min(0.0, 1 - ref_len / hyp_len)) if hyp_len else 0.0
    mean = math.exp(sum(map(math.log, precisions)) / MAX_ORDER) if all(precisions) else 0.0
    score = brevity_penalty * mean
    percentages = tuple(100 * precision for precision in precisions)
    return Bleu(100 * score, percentages, brevity_penalty, hyp_len, ref_len)


def compound_split(tokens: str) -> str:
    """Split words at hyphens like get_ende_bleu.sh: "rich-text" to "rich ##AT##-##AT## text".

    As in the script, a match includes one byte on each side: "a-b-c" is split once, "a-ä-c" twice.
    """
    return _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", tokens.encode()).decode()


def bleu_metric(lang: Language, *, lowercase: bool = False) -> BLEU:
    """Return the metric of sacreBLEU with the tokenizer that its command line uses for `lang`.

    Raises:
        UserError: The tokenizer is not installed.
    """
    try:
        # force: do not print warnings
        return BLEU(lowercase=lowercase, force=True, trg_lang=lang.code)
    except RuntimeError:
        raise UserError(
            f"for the language {lang}, sacreBLEU needs a tokenizer that is not installed; run "
            f'`pip install "sacrebleu[{lang.code}]"`'
        ) from None


def sacre_bleu(
    hyps: Sequence[str],
    *references: Sequence[str],
    lang: Language,
    lowercase: bool = False,
    n_bootstrap: int = 1000,
) -> SacreBleu:
    """Compute sacreBLEU of plain text, with a confidence interval from `n_bootstrap` resamples.

    Raises:
        UserError: There are no lines, the numbers of hypotheses and references differ, the
            tokenizer of the language is not installed, or SACREBLEU_SEED is not a number.
    """
    _check_counts(hyps, *references)
    seed()  # sacreBLEU itself raises ValueError
    metric = bleu_metric(lang, lowercase=lowercase)
    result = metric.corpus_score(hyps, references, n_bootstrap=n_bootstrap)
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
    *references: Sequence[str],
    tools: TextTools,
    lowercase: bool = False,
    normalize_punctuation: bool = False,
) -> dict[str, dict[str, object]]:
    """Compute all three kinds of BLEU, each with a description of how it was computed.

    Moses tokens of a language without spaces between words are not words; it gets sacreBLEU alone.

    Args:
        hyps: Detokenized translations.
        references: One or more, as published.
        tools: The Moses scripts for the target language.
        lowercase: Lowercase both sides, for models of lowercased text.
        normalize_punctuation: Normalize punctuation on both sides for `tokenized_bleu`.

    Returns:
        `sacrebleu`, `tokenized_bleu` and `compound_split_bleu`, ready for JSON.

    Raises:
        UserError: There are no lines, the numbers of hypotheses and references differ, or
            sacreBLEU's tokenizer for the language is not installed.
    """
    texts = (hyps, *references)
    scores = {"sacrebleu": _sacrebleu(texts, tools.lang, lowercase)}
    if tools.lang.is_spaced:
        scores["tokenized_bleu"] = _tokenized_bleu(texts, tools, lowercase, normalize_punctuation)
        scores["compound_split_bleu"] = _compound_split_bleu(texts, tools, lowercase)
    return scores


def _sacrebleu(
    texts: Sequence[Sequence[str]], lang: Language, lowercase: bool
) -> dict[str, object]:
    bleu = sacre_bleu(*texts, lang=lang, lowercase=lowercase)
    case = "lower-cased" if lowercase else "cased"
    return {
        **_parts(bleu, f"sacreBLEU over plain text, {case}, nothing normalized"),
        "signature": bleu.signature,
        "confidence_interval": list(bleu.confidence_interval),
    }


def _tokenized_bleu(
    texts: Sequence[Sequence[str]], tools: TextTools, lowercase: bool, normalize_punctuation: bool
) -> dict[str, object]:
    def tokenize(line: str) -> str:
        if normalize_punctuation:
            line = tools.normalize_punctuation(line)
        if lowercase:
            line = line.lower()
        return tools.tokenize(line)

    bleu = multi_bleu(*([tokenize(line) for line in text] for text in texts))
    normalization = (
        f"normalize-punctuation.perl -l {tools.lang.code} on both sides"
        if normalize_punctuation
        else "nothing normalized"
    )
    case = "lower-cased before tokenization" if lowercase else "cased"
    how = f"multi-bleu.perl over tokenizer.perl -l {tools.lang.code}, {case}, {normalization}"
    return _parts(bleu, how)


def _compound_split_bleu(
    texts: Sequence[Sequence[str]], tools: TextTools, lowercase: bool
) -> dict[str, object]:
    @cache  # most lines are the same with and without changes
    def split(line: str) -> str:
        return compound_split(tools.tokenize(line.lower() if lowercase else line))

    def changed(change: Callable[[str], str]) -> list[list[str]]:
        return [[split(change(line)) for line in text] for text in texts]

    normalized = changed(tools.replace_unicode_punctuation)
    references = ([split(line) for line in reference] for reference in texts[1:])
    bleu = multi_bleu(normalized[0], *references)
    case = "lower-cased before tokenization" if lowercase else "cased"
    how = (
        f"get_ende_bleu.sh: multi-bleu.perl over tokenizer.perl -l {tools.lang.code} with "
        f"compounds split at hyphens, {case}, replace-unicode-punctuation.perl on the hypothesis "
        "alone; score_both_normalized has it on the reference too; score_quotes_replaced has, in "
        f'place of it, {" ".join(QUOTES)} replaced by " on both sides'
    )
    return {
        **_parts(bleu, how),
        "score_both_normalized": multi_bleu(*normalized).score,
        "score_quotes_replaced": multi_bleu(*changed(_replace_quotes)).score,
    }


def _replace_quotes(line: str) -> str:
    return line.translate(_STRAIGHT)


def _parts(bleu: Bleu, how: str) -> dict[str, object]:
    return {
        "score": bleu.score,  # rounded only when it is printed
        "how": how,
        "precisions": list(bleu.precisions),
        "brevity_penalty": bleu.brevity_penalty,
        "hyp_len": bleu.hyp_len,
        "ref_len": bleu.ref_len,
    }


_HYPHEN = re.compile(rb"(\S)-(\S)")


def _tokens(line: str) -> list[bytes]:
    """Split at ASCII spaces, like Perl on bytes: U+00A0 does not separate tokens."""
    return line.encode().split()


def _ngrams(tokens: list[bytes], order: int) -> Counter[tuple[bytes, ...]]:
    return Counter(zip(*(tokens[start:] for start in range(order)), strict=False))


def _closest(hyp_len: int, ref_lens: Iterable[int]) -> int:
    """Return the length of the reference closest to the hypothesis; of two, the shorter one."""
    return min(ref_lens, key=lambda ref_len: (abs(ref_len - hyp_len), ref_len))


def _check_counts(hyps: Sequence[str], *references: Sequence[str]) -> None:
    for refs in references:
        if len(hyps) != len(refs):
            raise UserError(
                f"BLEU needs one reference per hypothesis, but there are {len(hyps)} hypotheses "
                f"and {len(refs)} references; give two files of the same test set"
            )
    if not hyps:
        raise UserError("BLEU needs at least one line, but hypotheses and references are empty")
