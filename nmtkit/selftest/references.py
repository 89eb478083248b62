"""Our fast implementations against the reference packages, on any text."""

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr

from sacrebleu.metrics.bleu import BLEU
from subword_nmt import learn_bpe as reference_learning

from nmtkit.corpus.bpe_learning import Pair, learn_bpe
from nmtkit.corpus.moses_tokenizer import moses_tokenizer, plain_moses
from nmtkit.errors import shown
from nmtkit.evaluation.bleu import multi_bleu, sacre_bleu
from nmtkit.languages import Language
from nmtkit.selftest.environment import Check

N_MERGES = 1_000
DROPPED = 7  # one word in so many, for hypotheses that differ from their references
N_BOOTSTRAP = 2  # confidence intervals are not compared


def compare(
    src: Sequence[str], tgt: Sequence[str], langs: tuple[Language, Language]
) -> Iterator[Check]:
    """Yield a check of each implementation on a text and its translation, line by line."""
    tokens = []
    for lines, lang in zip((src, tgt), langs, strict=True):
        ours = [moses_tokenizer(lang.code, False)(line) for line in lines]
        yield _tokens(lines, ours, lang)
        tokens.append(ours)
    counts = Counter(word for lines in tokens for line in lines for word in line.split(" ") if word)
    merges = learn_bpe(counts, N_MERGES)
    yield _learned(merges, counts)
    yield from _bleu(tgt, tokens[1], langs[1])


def _tokens(lines: Sequence[str], ours: Sequence[str], lang: Language) -> Check:
    for number, (line, tokens) in enumerate(zip(lines, ours, strict=True), 1):
        expected = plain_moses(lang.code, False, line)
        if tokens != expected:
            return Check(
                f"tokens, {lang}",
                "failed",
                f"line {number:,}: {shown(tokens)}, but sacremoses gives {shown(expected)}",
            )
    return Check(f"tokens, {lang}", "held", f"{len(lines):,} lines as sacremoses tokenizes them")


def _learned(merges: Sequence[Pair], counts: Mapping[str, int]) -> Check:
    if all(len(word) == 1 for word in counts):  # where subword-nmt ends with an error
        return Check("BPE learned", "skipped", "no word has two letters")
    codes = io.StringIO()
    dictionary = io.StringIO("".join(f"{word} {count}\n" for word, count in counts.items()))
    with redirect_stderr(io.StringIO()):  # its progress bar
        reference_learning.learn_bpe(dictionary, codes, N_MERGES, is_dict=True)
    expected = [tuple(line.split(" ")) for line in codes.getvalue().split("\n")[1:-1]]
    if list(merges) == expected:
        return Check("BPE learned", "held", f"{len(merges):,} merges as subword-nmt learns them")
    first = next(
        (i for i, both in enumerate(zip(merges, expected, strict=False)) if both[0] != both[1]),
        min(len(merges), len(expected)),
    )
    return Check(
        "BPE learned",
        "failed",
        f"merge {first + 1:,} of {len(merges):,} and of subword-nmt's {len(expected):,} differs",
    )


def _bleu(refs: Sequence[str], tokens: Sequence[str], lang: Language) -> Iterator[Check]:
    def scores() -> Iterator[tuple[str, float, float]]:
        raw, tokenized = _spoilt(refs), _spoilt(tokens)
        plain = BLEU(trg_lang=lang.code, force=True)
        yield (
            "sacreBLEU",
            sacre_bleu(raw, refs, lang=lang, n_bootstrap=N_BOOTSTRAP).score,
            plain.corpus_score(raw, [list(refs)]).score,
        )
        by_words = BLEU(tokenize="none", smooth_method="none", force=True)
        yield (
            "tokenized BLEU",
            multi_bleu(tokenized, tokens).score,
            by_words.corpus_score(tokenized, [list(tokens)]).score,
        )

    for what, ours, theirs in scores():
        is_equal = abs(ours - theirs) < 1e-9
        seen = f"{ours:.4f}, as sacrebleu" if is_equal else f"{ours!r}, but sacrebleu {theirs!r}"
        yield Check(what, "held" if is_equal else "failed", seen)


def _spoilt(lines: Sequence[str]) -> list[str]:
    """Return `lines` without every seventh word."""
    n_words = 0
    spoilt = []
    for line in lines:
        words = line.split(" ")
        spoilt.append(" ".join(w for i, w in enumerate(words, n_words) if i % DROPPED))
        n_words += len(words)
    return spoilt
