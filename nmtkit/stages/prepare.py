"""prepare: from raw parallel text to memory-mapped token ids (section 5.1).

The training text is streamed twice: to tokenize and clean it and count its words, then to encode
it. The results of worker processes are written in order, and a journal of them lets a killed run
resume.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from nmtkit.config.recipe import (
    BpeConfig,
    BundleConfig,
    CorpusConfig,
    Recipe,
    SentencePieceConfig,
)
from nmtkit.corpus import ids as store
from nmtkit.corpus import prepared, tokenized
from nmtkit.corpus.bpe_learning import learn_bpe
from nmtkit.corpus.chunks import map_chunks, read_chunks
from nmtkit.corpus.cleaning import Cleaning, SeenPairs, describe_reasons
from nmtkit.corpus.ids import PackedIds
from nmtkit.corpus.long_lines import split_long
from nmtkit.corpus.moses import Tokenization, Tokenizations
from nmtkit.corpus.prepared import SIDES
from nmtkit.corpus.sentencepieces import learn_sentencepieces
from nmtkit.corpus.special_tokens import EOS_ID, SPECIALS
from nmtkit.corpus.subword import BpeSubword, SentencePieceSubword, Subword, read_subword
from nmtkit.sources.file_pair import read_parallel
from nmtkit.sources.source import Pair
from nmtkit.sources.text import TextFile
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.artifacts import Artifact
from nmtkit.store.files import check_free_space
from nmtkit.store.journal import Journal
from nmtkit.store.manifests import TEMPORARY
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError

CHUNKS_PER_PART = 50  # between two entries of the journal


def run(pipeline: Pipeline) -> Artifact:
    """Publish the prepared corpus of the recipe.

    The test sets are read first, so that an error in them is reported before hours of work.

    Raises:
        UserError: A test set contains only blank lines, or cleaning drops all training pairs.
    """
    for corpus in pipeline.corpora["sets"]:
        n_lines = 0
        # All lines are read: errors may be at the end of a file, such as a missing line.
        for row in corpus.rows(pipeline.fetch, _log, _warn):
            if row[0].strip():
                n_lines += 1
        if n_lines == 0:
            raise UserError(
                f"the test set {corpus.name} contains only blank lines; set another one in [test] "
                "sets"
            )
    _check_protected(pipeline.recipe)
    pipeline.delete_forced()
    return pipeline.build("prepare", lambda draft: _prepare(pipeline, draft), resume=True)


def _check_protected(recipe: Recipe) -> None:
    """Check that no step before subwords changes the protected tokens.

    Raises:
        UserError: The tokenization changes one, or it is a special symbol.
    """
    if not isinstance(recipe.subword, SentencePieceConfig):
        return
    for token in recipe.subword.protected:
        if token in SPECIALS:
            raise UserError(
                f"[subword] protected has {token!r}, which is a special token of nmtkit; remove it"
            )
        # sentencepiece would never read a token that is changed before.
        for tokenization in tokenizations(recipe.corpus):
            changed = tokenization.tokenize(token)
            if changed != token:
                raise UserError(
                    f"[subword] protected has {token!r}, which [corpus] turns into {changed!r}; "
                    'set tokenizer = "none", lowercase = false and normalize_punctuation = false'
                )


def _log(message: str) -> None:
    progress.log(f"prepare: {message}")


def _warn(message: str) -> None:
    progress.warn(f"prepare: {message}")


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


def _prepare(pipeline: Pipeline, draft: Path) -> dict[str, Any]:
    """Write the prepared corpus to a draft, and return its measurements."""
    journal = Journal(draft / TEMPORARY, draft)
    downloads_dir = pipeline.settings.downloads_dir
    n_workers = pipeline.settings.n_workers()

    # Fail now if the disk is too small, with the files of an earlier run counted.
    n_required = sum(corpus.prepared_bytes(downloads_dir) for corpus in pipeline.corpora["train"])
    n_written = sum(path.stat().st_size for path in draft.rglob("*") if path.is_file())
    check_free_space(draft, n_required - n_written, "preparing the training text")
    dev = list(pipeline.corpora["dev"][0].pairs(pipeline.fetch, _log, _warn))

    # Training text. Each step continues where an earlier run was killed.
    clean = _tokenize_all(pipeline, journal)
    subword = _learn_once(pipeline, journal, draft, clean.words)
    n_tokens = subword.n_tokens
    n_rows = pipeline.recipe.model.embedding_rows(n_tokens)
    _log(f"{n_tokens:,} tokens, {n_rows:,} rows of embeddings")
    _encode_all(clean, journal, draft, subword, n_workers)
    n_unknown = prepared.count_unknown(draft, n_tokens)
    if n_unknown:
        # A vocabulary of this text has all its characters, but that of a bundle may not.
        _warn(f"{n_unknown:,} tokens are unknown: the vocabulary lacks their characters")

    # Development set. It is small, so it is tokenized in this process, and nothing is dropped.
    src, tgt = tokenizations(pipeline.recipe.corpus)
    tokenized_dev = []
    for src_line, tgt_line in dev:
        tokenized_dev.append((_tokenize_line(src, src_line), _tokenize_line(tgt, tgt_line)))
    for index, (side, ids) in enumerate(zip(SIDES, _encode(subword, tokenized_dev), strict=True)):
        prepared.write_dev_lines(draft, side, [pair[index] for pair in dev])
        with store.ids_writer(prepared.ids_place(draft, "dev", side), n_tokens) as writer:
            writer.append(ids)

    Tokenizations(src=src, tgt=tgt).save(draft)
    prepared.write_samples(draft, clean.kept, clean.dropped)
    prepared.write_counts(draft, clean.counts, n_tokens)
    return {"workers": n_workers}


def _tokenize_line(tokenization: Tokenization, line: str) -> str:
    """Tokenize a line in the same pieces as for translation, which splits long lines."""
    if tokenization.has_trees:
        return tokenization.tokenize(line)
    return " ".join(tokenization.tokenize(piece) for piece in split_long(line))


@dataclass
class _CleanText:
    """The clean training text so far, and the counts of the pairs that were read."""

    src: Path
    tgt: Path
    counts: list[dict[str, Any]]  # of each corpus: its name, pairs, kept, dropped by reason
    chunks: int = 0  # finished chunks of raw text
    kept: list[dict[str, Any]] = field(default_factory=list)  # samples
    dropped: list[dict[str, Any]] = field(default_factory=list)
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
        names = ("counts", "chunks", "kept", "dropped", "finished")
        return {name: getattr(self, name) for name in names}

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


def _tokenize_all(pipeline: Pipeline, journal: Journal) -> _CleanText:
    """Write the part of the clean training text that is missing, and count all words.

    Args:
        pipeline: The recipe and the settings.
        journal: The journal of the draft. The files lie in its folder.
    """
    corpora = pipeline.corpora["train"]
    state = journal["tokenized"]
    if state is None:
        counts = []
        for corpus in corpora:
            counts.append({"corpus": corpus.name, "pairs": 0, "kept": 0, "dropped": {}})
        state = {"counts": counts}
    clean = _CleanText(journal.folder / "src", journal.folder / "tgt", **state)
    # `reopen` cuts off the bytes that were written after the last entry of the journal.
    with journal.reopen(clean.src) as src, journal.reopen(clean.tgt) as tgt:

        def commit() -> None:
            src.flush()
            tgt.flush()
            journal.commit("tokenized", clean.state(), clean.src, clean.tgt)

        if clean.chunks and not journal["learned"]:
            # Words are not part of the journal; those of an earlier run are counted in its text.
            for pair in clean.pairs():
                clean.words.update(tokenized.pair_words(pair))
        if clean.finished:
            return clean

        # Without the published number of pairs of every corpus, no time left is shown.
        total: int | None = 0
        for corpus in corpora:
            if total is not None:
                total = None if corpus.n_pairs is None else total + corpus.n_pairs
        with progress.task("prepare: tokenize and clean", unit="pairs", total=total) as task:
            task.advance(sum(count["pairs"] for count in clean.counts))
            # Reading and skipping finished chunks is fast: tokenization takes most of the time.
            raw_chunks = islice(_raw_chunks(pipeline), clean.chunks, None)
            n_workers = pipeline.settings.n_workers()
            for chunk in map_chunks(_tokenizer(pipeline), raw_chunks, workers=n_workers):
                src.write("".join(f"{pair[0]}\n" for pair in chunk.pairs).encode("utf-8"))
                tgt.write("".join(f"{pair[1]}\n" for pair in chunk.pairs).encode("utf-8"))
                clean.add(chunk)
                task.advance(len(chunk.pairs) + chunk.reasons.total())
                if clean.chunks % CHUNKS_PER_PART == 0:
                    commit()
        clean.finished = True
        _log_dropped(clean)
        commit()
    return clean


def _raw_chunks(pipeline: Pipeline) -> Iterator[tokenized.RawChunk]:
    """Yield the raw training text, with the indices of duplicates if the recipe drops them."""
    # All corpora are downloaded before the first one is read.
    texts = [corpus.pairs(pipeline.fetch, _log, _warn) for corpus in pipeline.corpora["train"]]
    drops_duplicates = pipeline.recipe.corpus.drop_duplicates
    seen = SeenPairs()
    for number, text in enumerate(texts):
        for index, chunk in enumerate(read_chunks(text, tokenized.LINES_PER_CHUNK)):
            duplicates = seen.repeated(chunk) if drops_duplicates else frozenset[int]()
            yield tokenized.RawChunk(number, index, chunk, duplicates)


def _tokenizer(pipeline: Pipeline) -> tokenized.ChunkTokenizer:
    """Return the work on a chunk of raw text, which is sent to worker processes."""
    config = pipeline.recipe.corpus
    src, tgt = tokenizations(config)
    # Held-out sentences are compared as tokens, so that spacing makes no difference.
    held_out_src: set[str] = set()
    held_out_tgt: set[str] = set()
    for corpus in pipeline.corpora["drop_held_out"]:
        for src_line, *tgt_lines in corpus.rows(pipeline.fetch):
            held_out_src.add(_tokenize_line(src, src_line))
            held_out_tgt.update(_tokenize_line(tgt, tgt_line) for tgt_line in tgt_lines)
    return tokenized.ChunkTokenizer(
        src,
        tgt,
        Cleaning(config.min_tokens, config.max_tokens, config.max_ratio),
        tuple(corpus.name for corpus in pipeline.corpora["train"]),
        frozenset(held_out_src),
        frozenset(held_out_tgt),
    )


def _log_dropped(clean: _CleanText) -> None:
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
            _log(
                f"{count['corpus']}: {count['pairs']:,} pairs, dropped {describe_reasons(reasons)}"
            )


def _learn_once(pipeline: Pipeline, journal: Journal, draft: Path, words: Counter[str]) -> Subword:
    """Learn the subword model, or load the one that an earlier run has learned.

    Args:
        pipeline: The recipe.
        journal: The journal of the draft.
        draft: The folder of the subword model.
        words: Counts of the words, which are cleared afterwards to save memory.
    """
    if journal["learned"]:
        return read_subword(draft, {path.name for path in draft.iterdir()})
    subword = _learn(pipeline, words)
    journal.commit("learned", True, *subword.save(draft))
    words.clear()
    return subword


def _learn(pipeline: Pipeline, words: Counter[str]) -> Subword:
    """Learn the subword model of the recipe from word counts, or take that of a bundle."""
    config = pipeline.recipe.subword
    if isinstance(config, BundleConfig):
        _log(f"using the vocabulary of {config.path}")
        return pipeline.bundles["prepare"].text.subword
    if isinstance(config, BpeConfig):
        with progress.task("prepare: learn BPE", unit="merges", total=config.n_merges) as task:
            codes = learn_bpe(words, config.n_merges, config.bpe_version, task.advance)
        return BpeSubword.from_words(codes, words)
    _log(f"learning {config.n_tokens:,} sentencepieces")
    pieces = learn_sentencepieces(words, config.n_tokens, config.protected)
    return SentencePieceSubword(pieces)


def _encode(subword: Subword, chunk: list[Pair]) -> tuple[PackedIds, PackedIds]:
    """Return the token ids of both sides of tokenized pairs; sentences end with an end symbol."""
    src = []
    tgt = []
    for src_line, tgt_line in chunk:
        src.append([*subword.encode(src_line), EOS_ID])
        tgt.append([*subword.encode_target(tgt_line), EOS_ID])
    return store.pack(src, subword.n_tokens), store.pack(tgt, subword.n_tokens)


def _encode_all(
    clean: _CleanText, journal: Journal, draft: Path, subword: Subword, n_workers: int
) -> None:
    """Write the token ids of the clean training text that are missing.

    Args:
        clean: The complete clean text.
        journal: The journal of the draft.
        draft: The folder of the ids.
        subword: The subword model.
        n_workers: Number of worker processes.
    """
    state = journal["encoded"] or {"chunks": 0, "src": {}, "tgt": {}}
    writer = partial(store.ids_writer, n_tokens=subword.n_tokens)
    with (
        writer(prepared.ids_place(draft, "train", "src"), **state["src"]) as src_ids,
        writer(prepared.ids_place(draft, "train", "tgt"), **state["tgt"]) as tgt_ids,
        progress.task("prepare: training text to ids", unit="pairs", total=clean.n_pairs) as task,
    ):
        # The writers continue after the chunks that an earlier run has committed.
        n_chunks = state["chunks"]
        task.advance(min(n_chunks * tokenized.LINES_PER_CHUNK, clean.n_pairs))
        chunks = islice(read_chunks(clean.pairs(), tokenized.LINES_PER_CHUNK), n_chunks, None)
        for src, tgt in map_chunks(partial(_encode, subword), chunks, workers=n_workers):
            src_ids.append(src)
            tgt_ids.append(tgt)
            n_chunks += 1
            task.advance(len(src.lengths))
            if n_chunks % CHUNKS_PER_PART == 0:
                state = {"chunks": n_chunks, "src": src_ids.flush(), "tgt": tgt_ids.flush()}
                journal.commit("encoded", state, *src_ids.paths, *tgt_ids.paths)
