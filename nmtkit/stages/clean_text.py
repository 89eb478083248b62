"""The clean training text of `prepare`: tokenized, cleaned and counted, part by part.

A journal of the finished parts lets a killed run resume.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any

from nmtkit.config.recipe import CorpusConfig
from nmtkit.corpus import tokenized
from nmtkit.corpus.chunks import map_chunks, read_chunks
from nmtkit.corpus.cleaning import Cleaning, SeenPairs, describe_reasons
from nmtkit.corpus.long_lines import split_long
from nmtkit.corpus.moses import Tokenization
from nmtkit.sources.file_pair import read_parallel
from nmtkit.sources.parallel import Corpus
from nmtkit.sources.source import Pair
from nmtkit.sources.text_file import TextFile
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.journal import Journal
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError


@dataclass
class CleanText:
    """The clean training text so far, and the counts of the pairs that were read."""

    src: Path
    tgt: Path
    counts: list[dict[str, Any]]  # of each corpus: its name, pairs, kept, dropped by reason
    chunks: int = 0  # finished chunks of raw text
    kept: list[dict[str, Any]] = field(default_factory=list)  # samples
    dropped: list[dict[str, Any]] = field(default_factory=list)
    dev: list[Pair] = field(default_factory=list)  # raw pairs that `dev_every` holds out
    finished: bool = False
    words: Counter[str] = field(default_factory=Counter)

    @property
    def n_pairs(self) -> int:
        """Number of clean pairs."""
        return sum(count["kept"] for count in self.counts)

    def pairs(self) -> Iterator[Pair]:
        """Read the clean pairs."""
        src = TextFile(self.src, keep_bom=True)
        tgt = TextFile(self.tgt, keep_bom=True)
        return read_parallel("the clean training text", src, tgt)

    def state(self) -> dict[str, Any]:
        """Return the state for the journal: everything that does not follow from the two files."""
        names = ("counts", "chunks", "kept", "dropped", "dev", "finished")
        return {name: getattr(self, name) for name in names}

    def hold_out(self, chunk: tokenized.TokenizedChunk, every: int) -> None:
        """Move every n-th clean pair of the whole text from a chunk to the development set.

        Args:
            chunk: The next chunk, which is changed.
            every: The number of pairs, of which the last one is held out.
        """
        kept = []
        held_out_words = Counter[str]()
        n_before = self.n_pairs + len(self.dev)
        for number, pair in enumerate(chunk.pairs, start=n_before + 1):
            if number % every != 0:
                kept.append(pair)
                continue
            self.dev.append(chunk.raw_pairs[number - n_before - 1])
            held_out_words.update(tokenized.pair_words(pair))
        chunk.reasons["dev_set"] += len(chunk.pairs) - len(kept)
        chunk.pairs = kept
        chunk.words -= held_out_words

    def add(self, chunk: tokenized.TokenizedChunk) -> None:
        """Count a chunk, whose pairs were written to the files."""
        count = self.counts[chunk.corpus]
        count["kept"] += len(chunk.pairs)
        count["pairs"] += len(chunk.pairs) + chunk.reasons.total()
        count["dropped"] = dict(Counter(count["dropped"]) + chunk.reasons)
        self.kept += chunk.kept
        # A chunk has samples for every reason; of all chunks, the first few are kept.
        n_samples = Counter((sample["corpus"], sample["reason"]) for sample in self.dropped)
        for sample in chunk.dropped:
            key = (sample["corpus"], sample["reason"])
            n_samples[key] += 1
            if n_samples[key] <= tokenized.DROPPED_PER_REASON:
                self.dropped.append(sample)
        self.words.update(chunk.words)
        self.chunks += 1


def write_clean_text(pipeline: Pipeline, journal: Journal) -> CleanText:
    """Write the part of the clean training text that is missing, and count all words.

    Args:
        pipeline: The recipe and the settings.
        journal: The journal of the draft. The files lie in its folder.

    Raises:
        UserError: Cleaning drops all pairs.
    """
    corpora = pipeline.corpora["train"]
    dev_every = pipeline.recipe.corpus.dev_every
    state = journal["tokenized"]
    if state is None:
        counts = []
        for corpus in corpora:
            counts.append({"corpus": corpus.name, "pairs": 0, "kept": 0, "dropped": {}})
        state = {"counts": counts}
    clean = CleanText(journal.folder / "src", journal.folder / "tgt", **state)
    # `reopen` cuts off the bytes that were written after the last entry of the journal.
    with journal.reopen(clean.src) as src, journal.reopen(clean.tgt) as tgt:
        if clean.chunks and not journal["learned"]:
            # Words are not part of the journal; those of an earlier run are counted in its text.
            for pair in clean.pairs():
                clean.words.update(tokenized.pair_words(pair))
        if clean.finished:
            return clean

        total = _published_pairs(corpora)
        with progress.task("tokenize and clean", unit="pairs", total=total) as task:
            task.advance(sum(count["pairs"] for count in clean.counts))
            # Reading and skipping finished chunks is fast: tokenization takes most of the time.
            raw_chunks = islice(_raw_chunks(pipeline), clean.chunks, None)
            n_workers = pipeline.settings.n_workers()
            for chunk in map_chunks(_tokenizer(pipeline), raw_chunks, workers=n_workers):
                if dev_every is not None:
                    clean.hold_out(chunk, dev_every)
                src.write("".join(f"{pair[0]}\n" for pair in chunk.pairs).encode("utf-8"))
                tgt.write("".join(f"{pair[1]}\n" for pair in chunk.pairs).encode("utf-8"))
                clean.add(chunk)
                task.advance(len(chunk.pairs) + chunk.reasons.total())
                if clean.chunks % tokenized.CHUNKS_PER_PART == 0:
                    _commit(clean, journal, src, tgt)
        clean.finished = True
        _log_dropped(clean)
        _commit(clean, journal, src, tgt)
    return clean


def _commit(clean: CleanText, journal: Journal, src: IO[bytes], tgt: IO[bytes]) -> None:
    """Enter the clean text so far into the journal.

    Args:
        src: The open file of the source.
        tgt: The open file of the target.
    """
    src.flush()
    tgt.flush()
    journal.commit("tokenized", clean.state(), clean.src, clean.tgt)


def _published_pairs(corpora: Sequence[Corpus]) -> int | None:
    """Return the published number of pairs of all corpora; None if one of them has none."""
    total = 0
    for corpus in corpora:
        if corpus.n_pairs is None:
            return None
        total += corpus.n_pairs
    return total


def _raw_chunks(pipeline: Pipeline) -> Iterator[tokenized.RawChunk]:
    """Yield the raw training text, with the indices of duplicates if the recipe drops them."""
    # All corpora are downloaded before the first one is read.
    texts = [corpus.pairs(pipeline.downloads) for corpus in pipeline.corpora["train"]]
    drops_duplicates = pipeline.recipe.corpus.drop_duplicates
    seen = SeenPairs()
    for number, text in enumerate(texts):
        for index, chunk in enumerate(read_chunks(text, tokenized.LINES_PER_CHUNK)):
            duplicates = seen.repeated(chunk) if drops_duplicates else frozenset[int]()
            yield tokenized.RawChunk(number, index, chunk, duplicates)


def _tokenizer(pipeline: Pipeline) -> tokenized.ChunkTokenizer:
    """Return the work on a chunk of raw text. Worker processes receive it."""
    config = pipeline.recipe.corpus
    src, tgt = pipeline_tokenizations(pipeline)
    # Held-out sentences are compared as tokens: spacing makes no difference.
    held_out_src: set[str] = set()
    held_out_tgt: set[str] = set()
    for corpus in pipeline.corpora["drop_held_out"]:
        for src_line, *tgt_lines in corpus.rows(pipeline.downloads):
            held_out_src.add(tokenize_line(src, src_line))
            held_out_tgt.update(tokenize_line(tgt, tgt_line) for tgt_line in tgt_lines)
    return tokenized.ChunkTokenizer(
        src,
        tgt,
        Cleaning(config.min_tokens, config.max_tokens, config.max_ratio),
        tuple(corpus.name for corpus in pipeline.corpora["train"]),
        frozenset(held_out_src),
        frozenset(held_out_tgt),
        has_raw_pairs=config.dev_every is not None,
    )


def _log_dropped(clean: CleanText) -> None:
    """Print the number of dropped pairs of each corpus, and the reasons.

    Raises:
        UserError: All pairs were dropped.
    """
    # An empty corpus would fail later, at a place that does not show the cause.
    if clean.n_pairs == 0:
        reasons = Counter[str]()
        for count in clean.counts:
            reasons.update(count["dropped"])
        raise UserError(
            f"cleaning dropped every training pair ({describe_reasons(reasons)}); check the text, "
            "or min_tokens, max_tokens and max_ratio in [corpus]"
        )
    for count in clean.counts:
        if count["dropped"]:
            reasons = Counter[str](count["dropped"])
            progress.log(
                f"{count['corpus']}: {count['pairs']:,} pairs, dropped {describe_reasons(reasons)}"
            )


def pipeline_tokenizations(pipeline: Pipeline) -> tuple[Tokenization, Tokenization]:
    """Return the tokenization of both sides. It keeps the language tags of a vocabulary."""
    src, tgt = tokenizations(pipeline.recipe.corpus)
    bundle = pipeline.bundle("prepare")
    return replace(src, keeps_tag=bundle is not None and bundle.text.src.keeps_tag), tgt


def tokenizations(corpus: CorpusConfig) -> tuple[Tokenization, Tokenization]:
    """Return the tokenization of the source and of the target language."""
    src = Tokenization(
        corpus.src_lang.code,
        normalize_punctuation=corpus.normalize_punctuation,
        lowercase=corpus.lowercase,
        tokenizer=corpus.tokenizer,
        aggressive_hyphens=corpus.aggressive_hyphens,
    )
    tgt_tokenizer = corpus.linearization or corpus.tokenizer
    return src, replace(src, lang=corpus.tgt_lang.code, tokenizer=tgt_tokenizer)


def tokenize_line(tokenization: Tokenization, line: str) -> str:
    """Tokenize a line. A long one is split into the same pieces as for translation."""
    if tokenization.has_trees:
        return tokenization.tokenize(line)
    return " ".join(tokenization.tokenize(piece) for piece in split_long(line))
