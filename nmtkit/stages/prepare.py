"""prepare: from raw parallel text to memory-mapped token ids (section 5.1).

The training text is streamed twice: to tokenize and clean it and count its words, then to turn it
into ids. Results of workers are written in order, and a journal of them lets a killed run resume.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from nmtkit.config.recipe import BpeConfig, BundleConfig, CorpusConfig
from nmtkit.corpus import ids as store
from nmtkit.corpus import prepared, tokenized
from nmtkit.corpus.bpe_learning import learn_bpe
from nmtkit.corpus.chunks import map_chunks, read_chunks
from nmtkit.corpus.cleaning import Cleaning, SeenPairs
from nmtkit.corpus.ids import PackedIds
from nmtkit.corpus.long_lines import split_long
from nmtkit.corpus.moses import Tokenization, Tokenizations
from nmtkit.corpus.prepared import SIDES
from nmtkit.corpus.sentencepieces import learn_sentencepieces
from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.corpus.subword import BpeSubword, SentencePieceSubword, Subword, read_subword
from nmtkit.sources.file_pair import read_parallel
from nmtkit.sources.source import Pair
from nmtkit.sources.text import TextFile
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.artifacts import Artifact
from nmtkit.store.files import check_room
from nmtkit.store.journal import Journal
from nmtkit.store.manifests import TEMPORARY
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError

CHUNKS_PER_PART = 50


def run(pipeline: Pipeline) -> Artifact:
    """Publish the prepared corpus of the recipe, once all test sets could be read too."""
    for corpus in pipeline.corpora["sets"]:
        if not sum(bool(pair[0].strip()) for pair in corpus.pairs(pipeline.fetch, _tell, _warn)):
            raise UserError(
                f"the test set {corpus.name} has blank lines alone; name another in [test] sets"
            )
    pipeline.delete_forced()
    return pipeline.make("prepare", lambda draft: _prepare(pipeline, draft), resume=True)


def _tell(note: str) -> None:
    progress.log(f"prepare: {note}")


def _warn(warning: str) -> None:
    progress.warn(f"prepare: {warning}")


def tokenizations(corpus: CorpusConfig) -> tuple[Tokenization, Tokenization]:
    src = Tokenization(
        corpus.src_lang.code,
        normalize_punctuation=corpus.normalize_punctuation,
        lowercase=corpus.lowercase,
        tokenizer=corpus.tokenizer,
        aggressive_hyphens=corpus.aggressive_hyphens,
    )
    of_tgt = corpus.linearization or corpus.tokenizer
    return src, replace(src, lang=corpus.tgt_lang.code, tokenizer=of_tgt)


def _prepare(pipeline: Pipeline, draft: Path) -> dict[str, Any]:
    journal = Journal(draft / TEMPORARY, draft)
    downloads, corpora = pipeline.settings.downloads_dir, pipeline.corpora["train"]
    needed = sum(corpus.prepared_bytes(downloads) for corpus in corpora)
    written = sum(path.stat().st_size for path in draft.rglob("*") if path.is_file())
    check_room(draft, needed - written, "preparing the training text")
    dev = list(pipeline.corpora["dev"][0].pairs(pipeline.fetch, _tell, _warn))
    clean = _tokenize_all(pipeline, journal)
    subword = _learn_once(pipeline, journal, draft, clean.words)
    n_tokens = subword.n_tokens
    _tell(f"{n_tokens:,} tokens, {pipeline.recipe.model.rows_for(n_tokens):,} rows of embeddings")
    _encode_all(clean, journal, draft, subword, pipeline.settings.n_workers())
    if n_unknown := prepared.count_unknown(draft, n_tokens):  # by the vocabulary of a bundle
        _warn(f"{n_unknown:,} tokens are unknown: the vocabulary lacks their characters")
    src, tgt = tokenizations(pipeline.recipe.corpus)
    pieces = [(_in_pieces(src, pair[0]), _in_pieces(tgt, pair[1])) for pair in dev]
    for number, (side, ids) in enumerate(zip(SIDES, _encode(subword, pieces), strict=True)):
        prepared.write_dev_lines(draft, side, [pair[number] for pair in dev])
        with store.ids_writer(prepared.ids_place(draft, "dev", side), n_tokens) as writer:
            writer.append(ids)
    Tokenizations(src=src, tgt=tgt).save(draft)
    prepared.write_samples(draft, clean.kept, clean.dropped)
    prepared.write_counts(draft, clean.counts, n_tokens)
    return {"workers": pipeline.settings.n_workers()}


def _in_pieces(tokenization: Tokenization, line: str) -> str:
    """Tokenize a line in the pieces that would be translated at once."""
    if tokenization.is_of_trees:
        return tokenization.tokenize(line)
    return " ".join(map(tokenization.tokenize, split_long(line)))


@dataclass
class _Clean:
    """The clean training text so far, and counts of the pairs that were read."""

    src: Path
    tgt: Path
    counts: list[dict[str, Any]]  # of each corpus: its name, pairs, kept, dropped by reason
    chunks: int = 0  # of raw text, finished
    kept: list[dict[str, Any]] = field(default_factory=list)  # samples
    dropped: list[dict[str, Any]] = field(default_factory=list)
    finished: bool = False
    words: Counter[str] = field(default_factory=Counter)

    @property
    def n_pairs(self) -> int:
        return sum(count["kept"] for count in self.counts)

    def pairs(self) -> Iterator[Pair]:
        return read_parallel("the clean training text", TextFile(self.src), TextFile(self.tgt))

    def told(self) -> dict[str, Any]:
        """Return what the journal records: everything that does not follow from the two files."""
        return {key: vars(self)[key] for key in vars(self) if key not in ("src", "tgt", "words")}

    def add(self, done: tokenized.Tokenized) -> None:
        count = self.counts[done.corpus]
        count["kept"] += len(done.pairs)
        count["pairs"] += len(done.pairs) + done.reasons.total()
        count["dropped"] = dict(Counter(count["dropped"]) + done.reasons)
        self.kept += done.kept
        shown = Counter((example["corpus"], example["reason"]) for example in self.dropped)
        for example in done.dropped:
            shown[example["corpus"], example["reason"]] += 1
            if shown[example["corpus"], example["reason"]] <= tokenized.DROPPED_OF_A_REASON:
                self.dropped.append(example)
        self.words.update(done.words)
        self.chunks += 1


def _tokenize_all(pipeline: Pipeline, journal: Journal) -> _Clean:
    """Write the clean training text, or what is missing of it, and count its words."""
    corpora = pipeline.corpora["train"]
    counts = [{"corpus": each.name, "pairs": 0, "kept": 0, "dropped": {}} for each in corpora]
    told = journal["tokenized"] or {"counts": counts}
    clean = _Clean(journal.folder / "src", journal.folder / "tgt", **told)
    with journal.reopen(clean.src) as src, journal.reopen(clean.tgt) as tgt:

        def commit() -> None:
            src.flush()
            tgt.flush()
            journal.commit("tokenized", clean.told(), clean.src, clean.tgt)

        if clean.chunks and not journal["learned"]:
            for pair in clean.pairs():  # that an earlier run wrote
                clean.words.update(tokenized.words_of(pair))
        if clean.finished:
            return clean
        totals = [corpus.n_pairs for corpus in corpora]
        total = None if None in totals else sum(n for n in totals if n)
        with progress.task("prepare: tokenize and clean", unit="pairs", total=total) as task:
            task.advance(sum(count["pairs"] for count in clean.counts))
            chunks = islice(_raw_chunks(pipeline), clean.chunks, None)
            workers = pipeline.settings.n_workers()
            for done in map_chunks(_tokenize(pipeline), chunks, workers=workers):
                src.write("".join(f"{pair[0]}\n" for pair in done.pairs).encode("utf-8"))
                tgt.write("".join(f"{pair[1]}\n" for pair in done.pairs).encode("utf-8"))
                clean.add(done)
                task.advance(len(done.pairs) + done.reasons.total())
                if clean.chunks % CHUNKS_PER_PART == 0:
                    commit()
        clean.finished = True
        _tell_dropped(clean)
        commit()
    return clean


def _raw_chunks(pipeline: Pipeline) -> Iterator[tokenized.RawChunk]:
    """Yield the raw training text, with duplicates marked if the recipe drops them."""
    # Downloads all before it reads one.
    texts = [corpus.pairs(pipeline.fetch, _tell, _warn) for corpus in pipeline.corpora["train"]]
    seen = SeenPairs()
    marking = pipeline.recipe.corpus.drop_duplicates
    for number, text in enumerate(texts):
        for index, chunk in enumerate(read_chunks(text, tokenized.LINES_PER_CHUNK)):
            yield tokenized.RawChunk(
                number, index, chunk, seen.repeated(chunk) if marking else frozenset()
            )


def _tokenize(pipeline: Pipeline) -> tokenized.Tokenize:
    config = pipeline.recipe.corpus
    sides = tokenizations(config)
    avoided: tuple[set[str], set[str]] = set(), set()
    for corpus in pipeline.corpora["drop_held_out"]:
        for pair in corpus.pairs(pipeline.fetch):
            for lines, how, line in zip(avoided, sides, pair, strict=True):
                lines.add(_in_pieces(how, line))
    return tokenized.Tokenize(
        *sides,
        Cleaning(config.min_tokens, config.max_tokens, config.max_ratio),
        tuple(corpus.name for corpus in pipeline.corpora["train"]),
        *(frozenset(lines) for lines in avoided),
    )


def _tell_dropped(clean: _Clean) -> None:
    def reasons(*counts: dict[str, Any]) -> str:
        dropped = sum((Counter[str](count["dropped"]) for count in counts), Counter[str]())
        return ", ".join(f"{n:,} {reason}" for reason, n in dropped.most_common())

    if not clean.n_pairs:
        raise UserError(
            f"cleaning dropped every training pair ({reasons(*clean.counts)}); look at the text, "
            "or at min_tokens, max_tokens and max_ratio in [corpus]"
        )
    for count in clean.counts:
        if count["dropped"]:
            _tell(f"{count['corpus']}: {count['pairs']:,} pairs, dropped {reasons(count)}")


def _learn_once(pipeline: Pipeline, journal: Journal, draft: Path, words: Counter[str]) -> Subword:
    """Learn subwords from the word counts, or load those that an earlier run learned."""
    if journal["learned"]:
        return read_subword(draft, {path.name for path in draft.iterdir()})
    subword = _learn(pipeline, words)
    journal.commit("learned", True, *subword.save(draft))
    words.clear()
    return subword


def _learn(pipeline: Pipeline, words: Counter[str]) -> Subword:
    config = pipeline.recipe.subword
    if isinstance(config, BundleConfig):
        _tell(f"takes the vocabulary of {config.path}")
        return pipeline.bundles["prepare"].text.subword
    if isinstance(config, BpeConfig):
        with progress.task("prepare: learn BPE", unit="merges", total=config.n_merges) as task:
            merges = learn_bpe(words, config.n_merges, progress=task.advance)
        return BpeSubword.of_words(merges, words)
    _tell(f"learn {config.n_tokens:,} sentencepieces")
    return SentencePieceSubword(learn_sentencepieces(words, config.n_tokens))


def _encode(subword: Subword, chunk: list[Pair]) -> tuple[PackedIds, PackedIds]:
    """Return the ids of both sides of tokenized pairs; each sentence ends with the EOS."""
    src, tgt = ([[*subword.encode(pair[side]), EOS_ID] for pair in chunk] for side in (0, 1))
    return store.pack(src, subword.n_tokens), store.pack(tgt, subword.n_tokens)


def _encode_all(
    clean: _Clean, journal: Journal, draft: Path, subword: Subword, workers: int
) -> None:
    """Write the ids of the clean training text, or what is missing of them."""
    done = journal["encoded"] or {"chunks": 0, "src": {}, "tgt": {}}
    writer = partial(store.ids_writer, n_tokens=subword.n_tokens)
    with (
        writer(prepared.ids_place(draft, "train", "src"), **done["src"]) as src_ids,
        writer(prepared.ids_place(draft, "train", "tgt"), **done["tgt"]) as tgt_ids,
        progress.task("prepare: training text to ids", unit="pairs", total=clean.n_pairs) as task,
    ):
        task.advance(min(done["chunks"] * tokenized.LINES_PER_CHUNK, clean.n_pairs))
        chunks = islice(read_chunks(clean.pairs(), tokenized.LINES_PER_CHUNK), done["chunks"], None)
        encoded = map_chunks(partial(_encode, subword), chunks, workers=workers)
        for n_chunks, (src, tgt) in enumerate(encoded, start=done["chunks"] + 1):
            src_ids.append(src)
            tgt_ids.append(tgt)
            task.advance(len(src.lengths))
            if n_chunks % CHUNKS_PER_PART == 0:
                at = {"chunks": n_chunks, "src": src_ids.flush(), "tgt": tgt_ids.flush()}
                journal.commit("encoded", at, *src_ids.paths, *tgt_ids.paths)
