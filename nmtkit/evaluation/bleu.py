"""BLEU as computed by sacreBLEU and as reported in the paper (Table 2).

The paper does not state how its BLEU was computed. tensor2tensor's get_ende_bleu.sh, two weeks
younger than the code of the paper (75f398d8, 2017-06-29, against 3d9c62f2), splits compounds at
hyphens: `compound_split_bleu`. It replaces Unicode punctuation only in hypotheses, and only since
2018 (fc9335c0); `score_both_normalized` replaces it in references too.

newstest2014 quotes in German with both „ “ and ". According to tensor2tensor#317, the published
scores need a reference that has " throughout, like the one that was published with the checkpoints.
So `score_quotes_replaced` is the figure to compare with 27.3 and 28.4: the script of June 2017,
with those marks replaced on both sides. The kind of BLEU of the English-French figures (38.1, 41.0
and 41.8) is not published.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from sacrebleu.metrics.bleu import BLEU

from nmtkit.config.recipe import SacrebleuTokenizer
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.moses_punctuation import replace_unicode_punctuation
from nmtkit.evaluation.sacre import Lines, ScoreRecord, bleu_parts, case, check_counts, sacre_bleu
from nmtkit.utils.language import Language

QUOTES = "„“”"  # the double marks of newstest2014 in German, and the one that closes English ones
STRAIGHT_QUOTES = str.maketrans(dict.fromkeys(QUOTES, '"'))
HYPHEN = re.compile(rb"(\S)-(\S)")
# Python splits at these characters, but Perl reads bytes and does not. Private characters, one
# per space, replace them.
UNICODE_SPACES = "\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
UNICODE_SPACES += "".join(map(chr, range(0x2000, 0x200B)))
LETTERS = str.maketrans({space: chr(0x100000 + ord(space)) for space in UNICODE_SPACES})


def multi_bleu(hyps: Lines, *references: Lines) -> ScoreRecord:
    """Compute BLEU of tokens between ASCII spaces, unsmoothed, like multi-bleu.perl.

    Args:
        hyps: Tokenized hypotheses.
        references: One or more tokenized references.
    """
    check_counts(hyps, *references)
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    texts = []
    for text in (hyps, *references):
        texts.append([line.translate(LETTERS) for line in text])
    return bleu_parts(metric.corpus_score(texts[0], texts[1:]))


def compound_split(tokens: str) -> str:
    """Split words at hyphens like get_ende_bleu.sh: "rich-text" to "rich ##AT##-##AT## text".

    As in the script, a match includes one byte before and after the hyphen: "a-b-c" is split once,
    "a-ä-c" twice.
    """
    return HYPHEN.sub(rb"\1 ##AT##-##AT## \2", tokens.encode()).decode()


def count_scores(
    hyps: Lines,
    *references: Lines,
    lang: Language,
    lowercase: bool = False,
    normalize_punctuation: bool = False,
    tokenizer: SacrebleuTokenizer | None = None,
    hyp_tokens: Lines | None = None,
) -> dict[str, ScoreRecord]:
    """Compute the three kinds of BLEU, with descriptions of their computation.

    Moses tokens of a language without spaces between words are not words: it has only
    `sacrebleu`.

    Args:
        hyps: Detokenized hypotheses.
        references: One or more detokenized references.
        normalize_punctuation: Apply normalize-punctuation.perl to both, for `tokenized_bleu` only.
        tokenizer: A tokenizer of sacreBLEU; None: that of the language.
        hyp_tokens: The hypotheses as Moses tokens that were lower-cased after the tokenizer, for
            `tokenized_bleu`. Detokenized, they would give other tokens: the tokenizer leaves a full
            stop at its word if the next word is lower-case.

    Returns:
        The scores by name, ready for JSON.
    """
    texts = (hyps, *references)
    scores = {"sacrebleu": sacre_bleu(*texts, lang=lang, lowercase=lowercase, tokenizer=tokenizer)}
    if lang.is_spaced:
        tokenization = Tokenization(
            lang.code, normalize_punctuation, lowercase, "moses", aggressive_hyphens=False
        )
        scores["tokenized_bleu"] = _tokenized_bleu(texts, tokenization, hyp_tokens)
        # The script of tensor2tensor normalizes nothing before it tokenizes.
        tokenization = replace(tokenization, normalize_punctuation=False)
        scores["compound_split_bleu"] = _compound_split_bleu(texts, tokenization)
    return scores


def _tokenized_bleu(
    texts: Sequence[Lines], tokenization: Tokenization, hyp_tokens: Lines | None
) -> ScoreRecord:
    """Compute BLEU of Moses tokens of texts: the hypotheses, then the references.

    Args:
        hyp_tokens: See `count_scores`. The references are then lower-cased likewise.
    """
    if hyp_tokens is not None:
        tokenization = replace(tokenization, lowercase="tokens")
    lang = tokenization.lang
    normalized = "nothing normalized"
    if tokenization.normalize_punctuation:
        normalized = f"normalize-punctuation.perl -l {lang} on both sides"
    method = (
        f"multi-bleu.perl over tokenizer.perl -l {lang}, {_token_case(tokenization)}, {normalized}"
    )
    tokenized = []
    for text in texts:
        tokenized.append([tokenization.tokenize(line) for line in text])
    if hyp_tokens is not None:
        tokenized[0] = list(hyp_tokens)
    return {**multi_bleu(*tokenized), "how": method}


def _compound_split_bleu(texts: Sequence[Lines], tokenization: Tokenization) -> ScoreRecord:
    """Compute BLEU like get_ende_bleu.sh of texts: the hypotheses, then the references."""

    # The two changes leave nearly all lines as they are. These are tokenized only once.
    @cache
    def split(line: str) -> str:
        return compound_split(tokenization.tokenize(line))

    def apply_to_texts(change: Callable[[str], str]) -> list[list[str]]:
        changed = []
        for text in texts:
            changed.append([split(change(line)) for line in text])
        return changed

    # The script changes only the hypotheses; the two other scores change both sides.
    references = []
    for text in texts[1:]:
        references.append([split(line) for line in text])
    normalized = apply_to_texts(replace_unicode_punctuation)
    straight = apply_to_texts(lambda line: line.translate(STRAIGHT_QUOTES))
    method = (
        f"get_ende_bleu.sh: multi-bleu.perl over tokenizer.perl -l {tokenization.lang} with "
        f"compounds split at hyphens, {_token_case(tokenization)}, "
        "replace-unicode-punctuation.perl applied to the hypothesis only; score_both_normalized "
        "applies it to the reference, too; score_quotes_replaced instead replaces "
        f'{" ".join(QUOTES)} by " on both sides'
    )
    return {
        **multi_bleu(normalized[0], *references),
        "how": method,
        "score_both_normalized": multi_bleu(*normalized)["score"],
        "score_quotes_replaced": multi_bleu(*straight)["score"],
    }


def _token_case(tokenization: Tokenization) -> str:
    """Describe the case of the tokens."""
    if tokenization.lowercase == "tokens":
        return "lower-cased after tokenization (the tokens of the model)"
    token_case = case(tokenization.lowercase)
    return f"{token_case} before tokenization" if tokenization.lowercase else token_case
