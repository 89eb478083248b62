"""prepare: from raw parallel text to memory-mapped token ids (section 5.1).

The training text passes twice as a stream: once to be tokenized, cleaned and its words counted,
and, when the subwords are learned from those counts, once to become ids. Chunks of lines go to
worker processes and come back in order, so the bytes do not depend on how many there are.
"""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nmtkit import artifacts, progress
from nmtkit.artifacts import Artifact
from nmtkit.corpus import store
from nmtkit.corpus.bpe import Bpe, learn_bpe
from nmtkit.corpus.chunks import map_chunks, read_chunks
from nmtkit.corpus.cleaning import Cleaning
from nmtkit.corpus.download import obtain
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.sentencepieces import SentencePieceSubword, learn_sentencepieces
from nmtkit.corpus.sources import ParallelText, TextFile, read_pairs
from nmtkit.corpus.store import IdsWriter, PackedIds
from nmtkit.corpus.subword import BpeSubword, Subword, build_bpe_vocabulary
from nmtkit.errors import UserError
from nmtkit.recipe import BpeConfig, CorpusConfig, Recipe
from nmtkit.stages.chain import Chain, Corpus, Text
from nmtkit.symbols import EOS_ID

LINES_PER_CHUNK = 2_000  # of a second or so: enough to outweigh sending them to a process
TOKENIZATION = "tokenization.json"  # how raw text becomes tokens; a bundle carries it too

Pair = tuple[str, str]


def run(chain: Chain) -> Artifact:
    """Publish the prepared corpus of the recipe."""
    return chain.make("prepare", lambda draft: _prepare(chain, draft))


def tokenizations(corpus: CorpusConfig) -> tuple[Tokenization, Tokenization]:
    """How the recipe tokenizes each side."""

    def of(lang: str) -> Tokenization:
        return Tokenization(
            lang,
            normalize_punctuation=corpus.normalize_punctuation,
            lowercase=corpus.lowercase,
            tokenizer=corpus.tokenizer,
            aggressive_hyphens=corpus.aggressive_hyphens,
        )

    return of(corpus.src_lang), of(corpus.tgt_lang)


def _prepare(chain: Chain, draft: Path) -> dict[str, Any]:
    recipe, workers = chain.recipe, chain.machine.workers
    texts = {
        split: [_text(chain, corpus) for corpus in corpora]
        for split, corpora in chain.corpora.items()
    }
    sides = tokenizations(recipe.corpus)
    artifacts.write_json(draft / TOKENIZATION, {"src": asdict(sides[0]), "tgt": asdict(sides[1])})
    langs = recipe.corpus.src_lang, recipe.corpus.tgt_lang
    with _Temporary(draft / "temporary") as temporary:
        cleaning = Cleaning(
            recipe.corpus.min_tokens, recipe.corpus.max_tokens, recipe.corpus.max_ratio
        )
        counts, words = _tokenize_all(
            texts["train"], Tokenize(*sides, cleaning), temporary, workers
        )
        subword = _learn(recipe, words)
        subword.save(draft)
        clean = ParallelText(
            "the cleaned training text", *(TextFile(temporary / side) for side in ("src", "tgt"))
        )
        with progress.task(
            "prepare: training text to ids", unit="pairs", total=sum(count.kept for count in counts)
        ) as task:
            encoded = map_chunks(
                Encode(subword), read_chunks(read_pairs(clean), LINES_PER_CHUNK), workers=workers
            )
            _write_ids(draft / "train", _counted(encoded, task), subword.n_tokens)
    for split in ("dev", "test"):
        _prepare_held_out(texts[split][0], draft / split, langs, sides, subword)
    summary = {
        "train": [vars(count) for count in counts],
        "vocabulary": subword.n_tokens,
        **_sizes(draft),
    }
    artifacts.write_json(draft / "counts.json", summary)
    return {"workers": workers}


# Getting the text


def _text(chain: Chain, corpus: Corpus) -> ParallelText:
    return ParallelText(corpus.name, _file(chain, corpus.src), _file(chain, corpus.tgt))


def _file(chain: Chain, text: Text) -> TextFile:
    if text.path is not None:
        return TextFile(text.path, text.catalog.member if text.catalog else None)
    assert text.catalog is not None
    remote = text.catalog.file
    assert not isinstance(remote, Path)
    with progress.task(f"prepare: {remote.url}", unit="bytes", total=remote.n_bytes) as task:
        path = obtain(remote, chain.downloads_dir, chain.machine.mirror, task.advance)
    return TextFile(path, text.catalog.member)


# Tokens and words


class Tokenized(NamedTuple):
    """A chunk of pairs, tokenized; of those that cleaning dropped only the reasons remain."""

    pairs: list[Pair]
    words: Counter[str]  # of both sides
    dropped: Counter[str]


@dataclass(frozen=True)
class Tokenize:
    """The work of a process on a chunk of raw pairs."""

    src: Tokenization
    tgt: Tokenization
    cleaning: Cleaning

    def __call__(self, chunk: tuple[int, list[Pair]]) -> tuple[int, Tokenized]:
        """Tokenize, clean and count the pairs of one corpus, whose number goes along."""
        number, raw = chunk
        result = Tokenized([], Counter(), Counter())
        for src_line, tgt_line in raw:
            pair = self.src.tokenize(src_line), self.tgt.tokenize(tgt_line)
            reason = self.cleaning.reason_to_drop(*pair)
            if reason:
                result.dropped[reason] += 1
                continue
            result.pairs.append(pair)
            for side in pair:
                result.words.update(side.split(" "))
        return number, result


@dataclass
class CorpusCounts:
    """What became of the pairs of one corpus."""

    corpus: str
    pairs: int
    kept: int
    dropped: Counter[str]  # by reason


def _tokenize_all(
    texts: list[ParallelText], tokenize: Tokenize, folder: Path, workers: int
) -> tuple[list[CorpusCounts], Counter[str]]:
    """Write the clean training text to `folder`; return what became of it and its words."""
    counts = [CorpusCounts(text.name, 0, 0, Counter()) for text in texts]
    words: Counter[str] = Counter()
    chunks = (
        (number, chunk)
        for number, text in enumerate(texts)
        for chunk in read_chunks(read_pairs(text), LINES_PER_CHUNK)
    )
    with (
        (folder / "src").open("w", encoding="utf-8", newline="\n") as src_file,
        (folder / "tgt").open("w", encoding="utf-8", newline="\n") as tgt_file,
        progress.task("prepare: tokenize and clean", unit="pairs") as task,
    ):
        for number, tokenized in map_chunks(tokenize, chunks, workers=workers):
            src_file.writelines(f"{src}\n" for src, _ in tokenized.pairs)
            tgt_file.writelines(f"{tgt}\n" for _, tgt in tokenized.pairs)
            words.update(tokenized.words)
            n_pairs = len(tokenized.pairs) + tokenized.dropped.total()
            counts[number].pairs += n_pairs
            counts[number].kept += len(tokenized.pairs)
            counts[number].dropped.update(tokenized.dropped)
            task.advance(n_pairs)
    if not any(count.kept for count in counts):
        reasons = sum((count.dropped for count in counts), Counter[str]())
        raise UserError(
            f"cleaning dropped every training pair ({_reasons(reasons)}); look at the text, or at "
            "min_tokens, max_tokens and max_ratio in [corpus]"
        )
    for count in counts:
        if count.dropped:
            progress.say(
                f"prepare: {count.corpus}: {count.pairs:,} pairs, dropped {_reasons(count.dropped)}"
            )
    return counts, words


def _reasons(dropped: Counter[str]) -> str:
    return ", ".join(f"{n:,} {reason}" for reason, n in dropped.most_common())


# Subwords


def _learn(recipe: Recipe, words: Counter[str]) -> Subword:
    config = recipe.subword
    if isinstance(config, BpeConfig):
        with progress.task("prepare: learn BPE", unit="merges", total=config.n_merges) as task:
            merges = learn_bpe(words, config.n_merges, progress=task.advance)
        return BpeSubword(merges, build_bpe_vocabulary(Bpe(merges), words))
    progress.say(f"prepare: learn {config.n_tokens:,} sentencepieces")
    return SentencePieceSubword(learn_sentencepieces(words, config.n_tokens))


# Ids


@dataclass(frozen=True)
class Encode:
    """The work of a process on a chunk of tokenized pairs."""

    subword: Subword

    def __call__(self, chunk: list[Pair]) -> tuple[PackedIds, PackedIds]:
        """The ids of both sides, each sentence with its end symbol."""
        src, tgt = (
            [[*self.subword.encode(pair[side]), EOS_ID] for pair in chunk] for side in (0, 1)
        )
        return store.pack(src, self.subword.n_tokens), store.pack(tgt, self.subword.n_tokens)


def _counted(
    encoded: Iterable[tuple[PackedIds, PackedIds]], task: progress.Task
) -> Iterator[tuple[PackedIds, PackedIds]]:
    for src, tgt in encoded:
        yield src, tgt
        task.advance(len(src.lengths))


def _write_ids(prefix: Path, encoded: Iterable[tuple[PackedIds, PackedIds]], n_tokens: int) -> None:
    with (
        IdsWriter(prefix.with_name(f"{prefix.name}.src"), n_tokens) as src_writer,
        IdsWriter(prefix.with_name(f"{prefix.name}.tgt"), n_tokens) as tgt_writer,
    ):
        for src, tgt in encoded:
            src_writer.append(src)
            tgt_writer.append(tgt)


def _prepare_held_out(
    text: ParallelText,
    prefix: Path,
    langs: tuple[str, str],
    sides: tuple[Tokenization, Tokenization],
    subword: Subword,
) -> None:
    """Keep a dev or test set's raw lines, every one of them, and write its ids."""
    pairs = list(read_pairs(text))
    for side, lang in enumerate(langs):
        lines = "".join(f"{pair[side]}\n" for pair in pairs)
        prefix.with_name(f"{prefix.name}.{lang}").write_text(lines, encoding="utf-8", newline="\n")
    tokenized = [(sides[0].tokenize(src), sides[1].tokenize(tgt)) for src, tgt in pairs]
    _write_ids(prefix, [Encode(subword)(tokenized)], subword.n_tokens)


def _sizes(draft: Path) -> dict[str, dict[str, int]]:
    """Pairs and tokens of each split, end symbols counted."""
    sizes = {}
    for split in ("train", "dev", "test"):
        src, tgt = (store.Ids.open(draft / f"{split}.{side}") for side in ("src", "tgt"))
        sizes[f"{split}_size"] = {
            "pairs": len(src),
            "src_tokens": len(src.ids),
            "tgt_tokens": len(tgt.ids),
        }
    return sizes


class _Temporary:
    """A folder that is gone, with all that it holds, before the artifact is published."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Path:
        self._path.mkdir()
        return self._path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path)
