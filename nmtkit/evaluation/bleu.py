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
from dataclasses import replace
from functools import cache

from sacrebleu.metrics.bleu import BLEU

from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.moses_punctuation import replace_unicode_punctuation
from nmtkit.evaluation.sacre import Facts, Lines, bleu_parts, case, check_counts, sacre_bleu
from nmtkit.utils.language import Language

QUOTES = "„“”"  # the double marks of newstest2014 in German, and the one that closes English ones
_STRAIGHT = str.maketrans(dict.fromkeys(QUOTES, '"'))
_HYPHEN = re.compile(rb"(\S)-(\S)")
# What Python splits at and Perl, which reads bytes, does not: each becomes a letter of its own.
_SPACES = "\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
_SPACES += "".join(map(chr, range(0x2000, 0x200B)))
_LETTERS = str.maketrans({space: chr(0x100000 + ord(space)) for space in _SPACES})


def multi_bleu(hyps: Lines, *references: Lines) -> Facts:
    """Compute BLEU of tokens between ASCII spaces, unsmoothed, like multi-bleu.perl."""
    check_counts(hyps, *references)
    texts = [[line.translate(_LETTERS) for line in text] for text in (hyps, *references)]
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    return bleu_parts(metric.corpus_score(texts[0], texts[1:]))


def compound_split(tokens: str) -> str:
    """Split words at hyphens like get_ende_bleu.sh: "rich-text" to "rich ##AT##-##AT## text".

    As in the script, a match includes one byte on each side: "a-b-c" is split once, "a-ä-c" twice.
    """
    return _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", tokens.encode()).decode()


def count_scores(
    hyps: Lines,
    *references: Lines,
    lang: Language,
    lowercase: bool = False,
    normalize_punctuation: bool = False,
) -> dict[str, Facts]:
    """Compute all three kinds of BLEU, each with a description of how it was computed.

    Texts are detokenized, `lang` is theirs, and punctuation is normalized for `tokenized_bleu`
    alone. Moses tokens of a language without spaces between words are not words; it gets sacreBLEU
    alone.
    """
    texts = (hyps, *references)
    scores = {"sacrebleu": sacre_bleu(*texts, lang=lang, lowercase=lowercase)}
    if lang.is_spaced:
        # Without aggressive hyphens (-a).
        how = Tokenization(lang.code, normalize_punctuation, lowercase, "moses", False)
        scores["tokenized_bleu"] = _tokenized_bleu(texts, how)
        how = replace(how, normalize_punctuation=False)
        scores["compound_split_bleu"] = _compound_split_bleu(texts, how)
    return scores


def _tokenized_bleu(texts: Sequence[Lines], how: Tokenization) -> Facts:
    normalized = "nothing normalized"
    if how.normalize_punctuation:
        normalized = f"normalize-punctuation.perl -l {how.lang} on both sides"
    said = f"multi-bleu.perl over tokenizer.perl -l {how.lang}, {_case(how)}, {normalized}"
    bleu = multi_bleu(*([how.tokenize(line) for line in text] for text in texts))
    return {**bleu, "how": said}


def _compound_split_bleu(texts: Sequence[Lines], how: Tokenization) -> Facts:
    @cache  # most lines are the same with and without changes
    def split(line: str) -> str:
        return compound_split(how.tokenize(line))

    def changed(change: Callable[[str], str]) -> list[list[str]]:
        return [[split(change(line)) for line in text] for text in texts]

    normalized = changed(replace_unicode_punctuation)
    straight = changed(lambda line: line.translate(_STRAIGHT))
    references = ([split(line) for line in reference] for reference in texts[1:])
    said = (
        f"get_ende_bleu.sh: multi-bleu.perl over tokenizer.perl -l {how.lang} with "
        f"compounds split at hyphens, {_case(how)}, replace-unicode-punctuation.perl on the "
        "hypothesis alone; score_both_normalized has it on the reference too; "
        f'score_quotes_replaced has, in place of it, {" ".join(QUOTES)} replaced by " on both sides'
    )
    return {
        **multi_bleu(normalized[0], *references),
        "how": said,
        "score_both_normalized": multi_bleu(*normalized)["score"],
        "score_quotes_replaced": multi_bleu(*straight)["score"],
    }


def _case(how: Tokenization) -> str:
    return case(how.lowercase) + " before tokenization" * how.lowercase
