"""prepare: from raw parallel text to memory-mapped token ids (section 5.1).

The training text is streamed twice: to tokenize and clean it and count its words (`clean_text`),
then to encode it. The results of worker processes are written in order, and a journal of them lets
a killed run resume.
"""

from collections import Counter
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from nmtkit.config.recipe import BpeConfig, BundleConfig, Recipe, SentencePieceConfig
from nmtkit.corpus import ids as store
from nmtkit.corpus import prepared, tokenized
from nmtkit.corpus.bpe_learning import learn_bpe
from nmtkit.corpus.bpe_subword import BpeSubword
from nmtkit.corpus.chunks import map_chunks, read_chunks
from nmtkit.corpus.ids import PackedIds
from nmtkit.corpus.moses import Tokenizations
from nmtkit.corpus.prepared import SIDES
from nmtkit.corpus.sentencepiece_subword import SentencePieceSubword, learn_sentencepieces
from nmtkit.corpus.special_tokens import EOS_ID, SPECIALS
from nmtkit.corpus.subword import Subword, read_subword
from nmtkit.sources.source import Pair
from nmtkit.stages.clean_text import (
    CleanText,
    pipeline_tokenizations,
    tokenizations,
    tokenize_line,
    write_clean_text,
)
from nmtkit.stages.forcing import delete_forced
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.artifacts import Artifact
from nmtkit.store.files import check_free_space
from nmtkit.store.journal import Journal
from nmtkit.store.manifests import TEMPORARY
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import counted


def run(pipeline: Pipeline) -> Artifact:
    """Publish the prepared corpus of the recipe.

    Raises:
        UserError: A test set contains only blank lines, or cleaning drops all training pairs.
    """
    # An error in a test set is reported before hours of work.
    _read_test_sets(pipeline)
    _check_protected(pipeline.recipe)
    delete_forced(pipeline)
    return pipeline.build("prepare", lambda draft: _prepare(pipeline, draft), resume=True)


@progress.prefix("prepare")
def _read_test_sets(pipeline: Pipeline) -> None:
    """Refuse a test set without text."""
    for corpus in pipeline.corpora["sets"]:
        n_lines = 0
        # All lines are read: errors may be at the end of a file, such as a missing line.
        for row in corpus.rows(pipeline.downloads):
            if row[0].strip():
                n_lines += 1
        if n_lines == 0:
            raise UserError(
                f"the test set {corpus.name} contains only blank lines; set another one in [test] "
                "sets"
            )


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


@progress.prefix("prepare")
def _prepare(pipeline: Pipeline, draft: Path) -> dict[str, Any]:
    """Write the prepared corpus to a draft, and return its measurements."""
    journal = Journal(draft / TEMPORARY, draft)
    n_workers = pipeline.settings.n_workers()

    # Fail now if the disk is too small, with the files of an earlier run counted.
    n_required = 0
    for corpus in pipeline.corpora["train"]:
        n_required += corpus.prepared_bytes(pipeline.downloads)
    n_written = sum(path.stat().st_size for path in draft.rglob("*") if path.is_file())
    check_free_space(draft, n_required - n_written, "preparing the training text")
    dev: list[Pair] = []
    for corpus in pipeline.corpora["dev"]:
        dev += corpus.pairs(pipeline.downloads)

    # Training text. Each step continues where an earlier run was killed.
    clean = write_clean_text(pipeline, journal)
    dev += clean.dev
    if not dev:
        raise UserError(
            f"cleaning kept {counted(clean.n_pairs, 'training pair')}, too few to hold out one in "
            f"dev_every = {pipeline.recipe.corpus.dev_every}; set a smaller number, or set dev"
        )
    subword = _learn_subword(pipeline, journal, draft, clean.words)
    n_tokens = subword.n_tokens
    n_rows = pipeline.recipe.model.embedding_rows(n_tokens)
    progress.log(f"{n_tokens:,} tokens, {n_rows:,} rows of embeddings")
    _encode_all(clean, journal, draft, subword, n_workers)
    n_unknown = prepared.count_unknown(draft, n_tokens)
    if n_unknown:
        # A vocabulary of this text has all its characters, but that of a bundle may not.
        progress.warn(f"{n_unknown:,} tokens are unknown: the vocabulary lacks their characters")

    # Development set. It is small, so it is tokenized in this process, and nothing is dropped.
    src, tgt = pipeline_tokenizations(pipeline)
    tokenized_dev = []
    for src_line, tgt_line in dev:
        tokenized_dev.append((tokenize_line(src, src_line), tokenize_line(tgt, tgt_line)))
    for index, (side, ids) in enumerate(zip(SIDES, _encode(subword, tokenized_dev), strict=True)):
        prepared.write_dev_lines(draft, side, [pair[index] for pair in dev])
        with store.ids_writer(prepared.ids_place(draft, "dev", side), n_tokens) as writer:
            writer.append(ids)

    Tokenizations(src=src, tgt=tgt).save(draft)
    prepared.write_samples(draft, clean.kept, clean.dropped)
    prepared.write_counts(draft, clean.counts, n_tokens)
    return {"workers": n_workers}


def _learn_subword(
    pipeline: Pipeline, journal: Journal, draft: Path, words: Counter[str]
) -> Subword:
    """Learn the subword model of the recipe or take that of a bundle, unless an earlier run did.

    Args:
        draft: The folder of the subword model.
        words: Counts of the words. They are cleared afterwards to save memory.
    """
    if journal["learned"]:
        return read_subword(draft, {path.name for path in draft.iterdir()})
    config = pipeline.recipe.subword
    subword: Subword
    if isinstance(config, BundleConfig):
        progress.log(f"using the vocabulary of {config.path}")
        bundle = pipeline.bundle("prepare")
        assert bundle is not None  # since [subword] names it
        subword = bundle.text.subword
    elif isinstance(config, BpeConfig):
        codes = learn_bpe(words, config.n_merges, config.bpe_version)
        subword = BpeSubword.from_words(codes, words)
    else:
        progress.log(f"learning {config.n_tokens:,} sentencepieces")
        pieces = learn_sentencepieces(words, config.n_tokens, config.protected)
        subword = SentencePieceSubword(pieces)
    journal.commit("learned", True, *subword.save(draft))
    words.clear()
    return subword


def _encode(subword: Subword, chunk: list[Pair]) -> tuple[PackedIds, PackedIds]:
    """Return the token ids of both sides of tokenized pairs; sentences end with an end symbol."""
    src = []
    tgt = []
    for src_line, tgt_line in chunk:
        src.append([*subword.encode(src_line), EOS_ID])
        tgt.append([*subword.encode_target(tgt_line), EOS_ID])
    return store.pack(src, subword.n_tokens), store.pack(tgt, subword.n_tokens)


def _encode_all(
    clean: CleanText, journal: Journal, draft: Path, subword: Subword, n_workers: int
) -> None:
    """Write the token ids of the clean training text that are missing.

    Args:
        clean: The complete clean text.
        draft: The folder of the ids.
        n_workers: Number of worker processes.
    """
    state = journal["encoded"] or {"chunks": 0, "src": {}, "tgt": {}}
    writer = partial(store.ids_writer, n_tokens=subword.n_tokens)
    with (
        writer(prepared.ids_place(draft, "train", "src"), **state["src"]) as src_ids,
        writer(prepared.ids_place(draft, "train", "tgt"), **state["tgt"]) as tgt_ids,
        progress.task("training text to ids", unit="pairs", total=clean.n_pairs) as task,
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
            if n_chunks % tokenized.CHUNKS_PER_PART == 0:
                state = {"chunks": n_chunks, "src": src_ids.flush(), "tgt": tgt_ids.flush()}
                journal.commit("encoded", state, *src_ids.paths, *tgt_ids.paths)
