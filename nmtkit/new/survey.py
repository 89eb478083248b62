"""A survey of a user's training text: its first pairs, its size, and pairs to hold out of it."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from nmtkit.corpus.cleaning import Cleaning, describe_reasons
from nmtkit.evaluation.plain_text import training_warnings
from nmtkit.sources.download import Downloads
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.parallel import Corpus, find_corpus
from nmtkit.sources.source import Pair, Source
from nmtkit.sources.text_formats import find_keys
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.text import counted, shorten

N_FIRST_PAIRS = 3
N_CHECKED_PAIRS = 10_000  # that are checked for text that is not plain
MAX_CHARACTERS = 100  # of a line
HELD_OUT_SETS = ("dev", "test")
# 5 % of the pairs for dev and 5 % for test, at most MAX_HELD_OUT each.
HELD_OUT_SHARE = 20
MAX_HELD_OUT = 1_000
WORDS_PER_CHARACTER = 0.6  # in languages that are written without spaces between words


class RankedPair(NamedTuple):
    """A pair of the text. Its rank is a hash: rising ranks are a random order."""

    rank: bytes
    line: int
    pair: Pair


@dataclass
class Survey:
    """What one pass through the training text found.

    Attributes:
        n_pairs: Number of sentence pairs.
        n_words: Number of words on the target side, estimated in languages without spaces.
        characters: The characters of both sides.
        dropped: Numbers of pairs that cleaning drops, by reason.
        candidates: Pairs that can be held out, in a random order.
    """

    n_pairs: int = 0
    n_words: float = 0.0
    characters: set[str] = field(default_factory=set)
    dropped: Counter[str] = field(default_factory=Counter)
    candidates: Sequence[RankedPair] = ()

    def clean_pairs(
        self, pairs: Iterable[Pair], cleaning: Cleaning, task: progress.Task, *, is_spaced: bool
    ) -> Iterator[Pair]:
        """Count pairs, and yield those that cleaning keeps.

        Args:
            cleaning: The rules of the recipe.
            task: Counts the pairs that are read.
            is_spaced: Whether the target language has spaces between words.
        """
        for src, tgt in pairs:
            self.n_pairs += 1
            self.n_words += len(tgt.split()) if is_spaced else WORDS_PER_CHARACTER * len(tgt)
            self.characters.update(src, tgt)
            task.advance(1)
            reason = cleaning.reason_to_drop(src, tgt)
            if reason is None:
                yield src, tgt
            else:
                self.dropped[reason] += 1


@progress.prefix("new")
def survey_text(
    train: Sequence[Source | str],
    own_sets: Sequence[Source | str],
    langs: tuple[Language, Language],
    cleaning: Cleaning,
    downloads: Downloads,
    print_lines: Callable[[str], None],
    *,
    has_tokens: bool = False,
) -> Survey:
    """Read the training text once, and the user's own sets to report their faults now.

    Args:
        train: The training text: sources, and names of public corpora.
        own_sets: The dev and test sets that are not held out.
        langs: The languages of source and target.
        cleaning: The rules of the recipe; pairs that they drop are not held out.
        downloads: The folder of downloads, and the mirror.
        print_lines: Prints the first pairs of a text as it is read.
        has_tokens: Whether the model reads tokens instead of plain text.

    Returns:
        The counts of the text, and the pairs that can be held out.
    """
    survey = Survey()
    _, tgt_lang = langs

    # All texts are opened, and their first pairs shown, before the first one is read.
    def open_pairs(source: Source | str) -> Iterator[Pair]:
        return _open_pairs(source, langs, downloads, print_lines, has_tokens=has_tokens)

    texts = [open_pairs(source) for source in train]
    sets = [open_pairs(source) for source in own_sets]
    with progress.task("read the text", unit="pairs") as task:
        pairs = survey.clean_pairs(
            chain.from_iterable(texts), cleaning, task, is_spaced=tgt_lang.is_spaced
        )
        survey.candidates = sample(pairs, len(HELD_OUT_SETS) * MAX_HELD_OUT)
    # Read to the end: a fault would otherwise appear only after hours of training.
    for pairs in sets:
        for _ in pairs:
            pass
    if survey.dropped["empty"]:
        n_empty = counted(survey.dropped["empty"], "pair")
        progress.warn(f"cleaning will drop {n_empty} with a blank side")
    return survey


def _open_pairs(
    source: Source | str,
    langs: tuple[Language, Language],
    downloads: Downloads,
    print_lines: Callable[[str], None],
    *,
    has_tokens: bool,
) -> Iterator[Pair]:
    """Print the first pairs of a text and warnings about them, and return all pairs.

    Args:
        langs: The languages of source and target.
        downloads: The folder of downloads, and the mirror.
        print_lines: Prints the first pairs.
        has_tokens: Whether the model reads tokens instead of plain text.
    """
    corpus = find_corpus(source, *langs)
    # The pairs are read only once: the text may be a large download.
    pairs = corpus.pairs(downloads)
    first = list(islice(pairs, N_CHECKED_PAIRS))
    lines = pair_lines(corpus, first[:N_FIRST_PAIRS])
    # Pairs of files with keys were refused.
    is_plain_pair = isinstance(corpus.source, FilePair)
    found = None if is_plain_pair or has_tokens else find_keys(first)
    if found is not None:
        lines.append(
            f"warning: {corpus.name}: both sides begin with the same key or number ({found}); "
            "remove it from both"
        )
    for warning in training_warnings(first, langs, has_tokens=has_tokens):
        lines.append(f"warning: {corpus.name}: {warning}")
    print_lines("\n".join(lines))
    return chain(first, pairs)


def pair_lines(corpus: Corpus, pairs: Sequence[Pair]) -> list[str]:
    """Return a line that describes the format of a corpus, and pairs under their languages."""
    labels = [f"{lang}:" for lang in corpus.langs]
    width = max(len(label) for label in labels)
    lines = [f"{corpus.name}, read as {corpus.source.description()}; the first pairs:"]
    for pair in pairs:
        for label, sentence in zip(labels, pair, strict=True):
            lines.append(f"  {label:{width}} {shorten(sentence, MAX_CHARACTERS)}")
    return lines


@progress.prefix("new")
def held_out_files(survey: Survey, sets: Mapping[str, FilePair]) -> dict[Path, str]:
    """Return the content of the files of held-out sets, in the order of the text.

    Args:
        survey: The survey of the training text.
        sets: The sets to be held out, by dev or test.

    Raises:
        UserError: Cleaning drops most of the text, or it repeats its sentences, so that too few
            pairs can be held out.
    """
    if not sets:
        return {}
    # Repeated pairs are one candidate: a text may have fewer candidates than pairs.
    n_wanted = min(survey.n_pairs // HELD_OUT_SHARE, MAX_HELD_OUT)
    n_pairs = min(n_wanted, len(survey.candidates) // len(sets))
    if n_pairs < n_wanted < MAX_HELD_OUT:
        n_clean = survey.n_pairs - survey.dropped.total()
        if n_clean < n_wanted * len(sets):
            raise UserError(
                f"cleaning leaves {n_clean:,} of {survey.n_pairs:,} pairs (dropped "
                f"{describe_reasons(survey.dropped)}), so no {next(iter(sets))} set can be held "
                "out; check the text, or pass --dev and --test"
            )
        raise UserError(
            f"nearly all sentences of the text are repeated, so no {next(iter(sets))} set can be "
            "held out; pass --dev and --test"
        )
    held_out = " and for ".join(sets)
    progress.log(f"held out {n_pairs:,} pairs of the text for {held_out}")

    files = {}
    for number, file_pair in enumerate(sets.values()):
        chosen = survey.candidates[number * n_pairs : (number + 1) * n_pairs]
        chosen = sorted(chosen, key=lambda candidate: candidate.line)
        for side, file in enumerate(file_pair.files()):
            files[file.path] = "".join(f"{candidate.pair[side]}\n" for candidate in chosen)
    return files


def sample(pairs: Iterable[Pair], size: int) -> list[RankedPair]:
    """Choose different pairs of a text at random: mostly the same ones after lines are added.

    Args:
        size: Number of pairs to choose; all are chosen if there are fewer.

    Returns:
        The pairs with the smallest hashes, in the order of these.
    """
    candidates: dict[bytes, RankedPair] = {}  # by rank: a repeated pair has one
    max_rank = b"\xff" * 32
    for line, pair in enumerate(pairs, 1):
        rank = hashlib.sha256("\t".join(pair).encode("utf-8")).digest()
        if rank <= max_rank:
            candidates.setdefault(rank, RankedPair(rank, line, pair))
        # Twice as many candidates as needed: sorting once per `size` lines is fast.
        if len(candidates) == 2 * size:
            smallest = sorted(candidates.values())[:size]
            candidates = {chosen.rank: chosen for chosen in smallest}
            max_rank = smallest[-1].rank
    return sorted(candidates.values())[:size]
