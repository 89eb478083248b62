"""BLEU as computed by sacreBLEU and as reported in the paper (Table 2).

The paper does not say how its scores are counted. tensor2tensor's get_ende_bleu.sh, two weeks
younger than the code of the paper (75f398d8, 2017-06-29, against 3d9c62f2), splits compounds at
hyphens: `compound_split_bleu`. Its replacement of Unicode punctuation, in hypotheses alone, is of
2018 (fc9335c0); `score_both_normalized` replaces it in references too.

newstest2014 quotes in German with both „ “ and ". tensor2tensor#317 says that the published scores
need a reference that has " throughout, as the one that was published with the checkpoints had. So
`score_quotes_replaced` is the figure to compare with 27.3 and 28.4: the script of June 2017, with
those marks replaced on both sides. Nothing says what 38.1, 41.0 and 41.8 of English-French are
comparable with.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from sacrebleu.metrics.bleu import BLEU, BLEUScore

from nmtkit.errors import UserError
from nmtkit.evaluation.seed import seed
from nmtkit.languages import Language

QUOTES = "„“”"  # the double marks of newstest2014 in German, and the one that closes English ones
_STRAIGHT = str.maketrans(dict.fromkeys(QUOTES, '"'))
_HYPHEN = re.compile(rb"(\S)-(\S)")
# What Python splits at and Perl, which reads bytes, does not: each becomes a letter of its own.
_SPACES = "\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
_SPACES += "".join(map(chr, range(0x2000, 0x200B)))
_LETTERS = str.maketrans({space: chr(0x100000 + ord(space)) for space in _SPACES})


@dataclass(frozen=True)
class Bleu:
    """A corpus score and its components; score and precisions range from 0 to 100.

    A score of sacreBLEU has its signature, with number and seed of the bootstrap resamples, and the
    95 % confidence interval: mean of the resamples plus/minus half the width of their central 95 %.
    """

    score: float
    precisions: tuple[float, ...]
    brevity_penalty: float
    hyp_len: int
    ref_len: int
    signature: str = ""
    confidence_interval: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def of(
        cls, score: BLEUScore, signature: str = "", interval: tuple[float, float] = (0.0, 0.0)
    ) -> "Bleu":
        """Take what sacreBLEU computed."""
        of_100 = min(score.score, 100.0)  # which rounding can exceed
        parts = of_100, tuple(score.precisions), score.bp, score.sys_len, score.ref_len
        return cls(*parts, signature, interval)


@dataclass(frozen=True)
class TextTools:
    """The Moses scripts for one language, as functions of a line; tokenizer.perl without `-a`."""

    lang: Language
    tokenize: Callable[[str], str]
    normalize_punctuation: Callable[[str], str]
    replace_unicode_punctuation: Callable[[str], str]


def multi_bleu(hyps_tok: Sequence[str], *references_tok: Sequence[str]) -> Bleu:
    """Compute BLEU of tokenized text like multi-bleu.perl, without smoothing.

    As in the script, only ASCII spaces separate tokens.

    Raises:
        UserError: There are no lines, or the numbers of hypotheses and references differ.
    """
    texts = (hyps_tok, *references_tok)
    _check_counts(*texts)
    hyps, *references = ([line.translate(_LETTERS) for line in text] for text in texts)
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    return Bleu.of(metric.corpus_score(hyps, references))


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
) -> Bleu:
    """Compute sacreBLEU of plain text, with a confidence interval from `n_bootstrap` resamples.

    Raises:
        UserError: There are no lines, the numbers of hypotheses and references differ, the
            tokenizer of the language is not installed, or SACREBLEU_SEED is not a number.
    """
    _check_counts(hyps, *references)
    seed()  # sacreBLEU itself raises ValueError
    metric = bleu_metric(lang, lowercase=lowercase)
    result = metric.corpus_score(hyps, references, n_bootstrap=n_bootstrap)
    interval = result._mean - result._ci, result._mean + result._ci
    return Bleu.of(result, str(metric.get_signature()), interval)


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
        UserError: As `sacre_bleu`.
    """
    texts = (hyps, *references)
    case = "lower-cased" if lowercase else "cased"
    bleu = sacre_bleu(*texts, lang=tools.lang, lowercase=lowercase)
    scores: dict[str, dict[str, object]] = {
        "sacrebleu": {
            **_parts(bleu, f"sacreBLEU over plain text, {case}, nothing normalized"),
            "signature": bleu.signature,
            "confidence_interval": list(bleu.confidence_interval),
        }
    }
    if tools.lang.is_spaced:
        scores["tokenized_bleu"] = _tokenized_bleu(texts, tools, lowercase, normalize_punctuation)
        scores["compound_split_bleu"] = _compound_split_bleu(texts, tools, lowercase)
    return scores


def _tokenized_bleu(
    texts: Sequence[Sequence[str]], tools: TextTools, lowercase: bool, normalize_punctuation: bool
) -> dict[str, object]:
    def tokenize(line: str) -> str:
        if normalize_punctuation:
            line = tools.normalize_punctuation(line)
        return tools.tokenize(line.lower() if lowercase else line)

    lang = tools.lang.code
    normalized = f"normalize-punctuation.perl -l {lang} on both sides"
    bleu = multi_bleu(*([tokenize(line) for line in text] for text in texts))
    how = (
        f"multi-bleu.perl over tokenizer.perl -l {lang}, {_case(lowercase)}, "
        f"{normalized if normalize_punctuation else 'nothing normalized'}"
    )
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
    how = (
        f"get_ende_bleu.sh: multi-bleu.perl over tokenizer.perl -l {tools.lang.code} with "
        f"compounds split at hyphens, {_case(lowercase)}, replace-unicode-punctuation.perl on the "
        "hypothesis alone; score_both_normalized has it on the reference too; "
        f'score_quotes_replaced has, in place of it, {" ".join(QUOTES)} replaced by " on both sides'
    )
    return {
        **_parts(bleu, how),
        "score_both_normalized": multi_bleu(*normalized).score,
        "score_quotes_replaced": multi_bleu(*changed(_replace_quotes)).score,
    }


def _replace_quotes(line: str) -> str:
    return line.translate(_STRAIGHT)


def _case(lowercase: bool) -> str:
    return "lower-cased before tokenization" if lowercase else "cased"


def _parts(bleu: Bleu, how: str) -> dict[str, object]:
    return {
        "score": bleu.score,  # rounded only when it is printed
        "how": how,
        "precisions": list(bleu.precisions),
        "brevity_penalty": bleu.brevity_penalty,
        "hyp_len": bleu.hyp_len,
        "ref_len": bleu.ref_len,
    }


def _check_counts(hyps: Sequence[str], *references: Sequence[str]) -> None:
    for refs in references:
        if len(hyps) != len(refs):
            raise UserError(
                f"BLEU needs one reference per hypothesis, but there are {len(hyps)} hypotheses "
                f"and {len(refs)} references; give two files of the same test set"
            )
    if not hyps:
        raise UserError("BLEU needs at least one line, but hypotheses and references are empty")
