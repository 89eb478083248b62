"""Compare a prepared corpus with facts that others published about the same text."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from nmtkit.corpus.bpe_subword import BpeSubword
from nmtkit.corpus.prepared import SIDES, PreparedCorpus, Side
from nmtkit.interchange.text_export import (
    count_pieces,
    piece_splitter,
    sentence_bytes,
    split_lines,
)
from nmtkit.sources.catalog import PublishedCorpus, load_catalog
from nmtkit.sources.parallel import Corpus, find_corpus
from nmtkit.sources.source import Pair
from nmtkit.sources.text_file import TextFile
from nmtkit.stages.pipeline import Pipeline
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language

TRAIN: Final = "train"
DEV: Final = "dev"
VERSION = "#version: "  # begins the codes of subword-nmt since 0.2
NOT_DOWNLOADED = "not downloaded"

Kind = Literal[
    "plain", "lines", "blob", "version", "codes", "size", "vocabulary", "subwords", "tokens"
]
TITLES: dict[Kind, str] = {
    "plain": "SHA-1 of plain text",
    "lines": "pairs after cleaning",
    "blob": "git blob of tokens",
    "version": "version of BPE",
    "codes": "SHA-1 of BPE codes",
    "size": "size of vocabulary",
    "vocabulary": "SHA-1 of sorted vocabulary",
    "subwords": "SHA-1 of subwords",
    "tokens": "tokens with end symbols",
}
# The way to the cause of a difference, if all facts before are equal.
HINTS: dict[Kind, str] = {
    "plain": "`nmtkit verify {recipe}` checks the archives; also compare the order of the corpora",
    "lines": "compare the dropped pairs (`nmtkit inspect {recipe}`) with those that tokenizer.perl "
    "and clean-corpus-n.perl drop; both depend on the version of Moses",
    "blob": "compare the tokens with the file of this id in {source}; they depend on the version "
    "of tokenizer.perl",
    "version": "prepare it with --set subword.bpe_version={expected}",
    "codes": "compare codes.bpe of `nmtkit export {recipe} DIR --format text` with {codes}: words "
    "with the first merge that differs are tokenized or counted differently",
    "size": "compare vocab.txt of `nmtkit export {recipe} DIR --format text` with {vocabulary}, "
    "both sorted",
    "vocabulary": "compare vocab.txt of `nmtkit export {recipe} DIR --format text` with "
    "{vocabulary}, both sorted",
    "subwords": "compare the text of `nmtkit export {recipe} DIR --format text` with the output of "
    "tokenizer.perl and subword-nmt apply-bpe with {codes}",
    "tokens": "other BPE codes or tokens; the codes of this text were not published",
}


class Fact(NamedTuple):
    """A fact about a prepared corpus: its kind, and the text and language that it is about."""

    kind: Kind
    text: str
    lang: str = ""  # empty: of both languages

    @property
    def file(self) -> str:
        """The text and language, as names of files have them: "train.en"."""
        return f"{self.text}.{self.lang}" if self.lang else self.text


@dataclass(frozen=True)
class Comparison:
    """A published fact, and the same fact about the prepared corpus."""

    published_by: str
    source: str
    text: str  # such as "train.en"
    fact: str
    state: Literal["equal", "different", "not compared"]
    published: str
    found: str
    hint: str  # the way to the cause of a difference; empty unless there is one


def compare_published(pipeline: Pipeline) -> Iterator[Comparison]:
    """Compare the prepared corpus of a recipe with all facts that were published about its text.

    Nothing is downloaded: facts about texts whose archives are not downloaded are not compared.

    Args:
        pipeline: The recipe, whose corpus is prepared.

    Raises:
        UserError: The corpus is not prepared, or nothing is published about its text.
    """
    config = pipeline.recipe.corpus
    # A recipe of the opposite direction has the same text: languages are compared as a set.
    langs = {config.src_lang.code, config.tgt_lang.code}
    all_published = load_catalog().published.values()
    same_text = []
    for published in all_published:
        if set(published.langs) == langs and published.train == config.train:
            same_text.append(published)
    if not same_text:
        titles = []
        for published in all_published:
            titles.append(f"{published.title} ({' + '.join(published.train)})")
        raise UserError(
            f"nothing is published about the training text of {pipeline.recipe.name}, only about "
            f"that of {', '.join(titles)}"
        )
    for published in same_text:
        corpus = _PreparedFacts(pipeline, published.langs)
        progress.log(f"verify: {published.title} ({published.source})")
        names = {
            "recipe": pipeline.command,
            "source": published.source,
            "codes": published.files.get("codes", "its codes"),
            "vocabulary": published.files.get("vocabulary", "its vocabulary"),
        }
        for fact, expected in _published_facts(published):
            found = corpus.find(fact)
            # A text that is not downloaded cannot be different.
            state: Literal["equal", "different", "not compared"] = "not compared"
            hint = ""
            if found == expected:
                state = "equal"
            elif found is not None:
                state = "different"
                hint = HINTS[fact.kind].format(expected=expected, **names)
            yield Comparison(
                published.title,
                published.source,
                fact.file,
                TITLES[fact.kind],
                state,
                expected,
                found or NOT_DOWNLOADED,
                hint,
            )


def _published_facts(published: PublishedCorpus) -> Iterator[tuple[Fact, str]]:
    """Yield the published facts, each after those that it depends on."""
    for name, text in published.texts.items():
        for lang, sha1 in text.plain.items():
            yield Fact("plain", name, lang), sha1
        if text.n_lines is not None:
            yield Fact("lines", name), f"{text.n_lines:,}"
        for lang, blob in text.tokens_blob.items():
            yield Fact("blob", name, lang), blob
        # Other codes cause other subwords. A reader should see them first.
        if name == TRAIN:
            if published.bpe_version is not None:
                yield Fact("version", TRAIN), published.bpe_version
            if published.codes_sha1 is not None:
                yield Fact("codes", TRAIN), published.codes_sha1
            if published.n_subwords is not None:
                yield Fact("size", TRAIN), f"{published.n_subwords:,}"
            if published.vocabulary_sha1 is not None:
                yield Fact("vocabulary", TRAIN), published.vocabulary_sha1
        for lang, sha1 in text.subwords.items():
            yield Fact("subwords", name, lang), sha1
        for lang, n_tokens in text.n_tokens.items():
            yield Fact("tokens", name, lang), f"{n_tokens:,}"


class _PreparedFacts:
    """The facts about a prepared corpus, in the format of the published ones."""

    def __init__(self, pipeline: Pipeline, set_langs: tuple[str, str]) -> None:
        """Open the prepared corpus of a recipe.

        Args:
            set_langs: The languages of source and target of the published sets. The recipe may
                have the other direction.
        """
        self._pipeline = pipeline
        self._corpus = PreparedCorpus(pipeline.need("prepare"))
        self._subword = self._corpus.subword()
        config = pipeline.recipe.corpus
        self._langs = [config.src_lang.code, config.tgt_lang.code]
        self._set_langs = set_langs
        self._sets: dict[str, list[Pair] | None] = {}  # by name; None: not downloaded

    def find(self, fact: Fact) -> str | None:
        """Return a fact, or None if the text that it is about is not downloaded."""
        match fact.kind:
            case "version":
                return self._bpe_version()
            case "codes":
                return _sha1([self._corpus.subword_model().read_bytes()])
            case "size":
                return f"{len(self._vocabulary):,}"
            case "vocabulary":
                return _hash_lines(sorted(self._vocabulary))
        return self._train_fact(fact) if fact.text == TRAIN else self._set_fact(fact)

    def _bpe_version(self) -> str:
        """Return the version of the BPE codes."""
        if not isinstance(self._subword, BpeSubword):
            return "sentencepiece"
        with self._corpus.subword_model().open(encoding="utf-8", newline="\n") as codes:
            line = codes.readline().strip()
        # subword-nmt wrote no version into the first files of codes.
        return line.removeprefix(VERSION) if line.startswith(VERSION) else "0.1"

    @cached_property
    def _vocabulary(self) -> Sequence[str]:
        """The subwords of the training text."""
        return list(count_pieces(self._corpus, self._subword))

    def _side(self, lang: str) -> Side:
        return SIDES[self._langs.index(lang)]

    def _train_fact(self, fact: Fact) -> str | None:
        """Return a fact about the training text."""
        size = self._corpus.counts().sizes[TRAIN]
        if fact.kind == "lines":
            return f"{size.pairs:,}"
        side = self._side(fact.lang)
        if fact.kind == "blob":
            ids = self._corpus.ids(TRAIN, side)
            sentences = (
                self._subword.decode(ids.ids[start:end].tolist())
                for start, end in pairwise(ids.offsets)
            )
            return _hash_blob(sentences)
        if fact.kind == "tokens":
            return f"{size.src_tokens if side == 'src' else size.tgt_tokens:,}"
        if fact.kind == "subwords":
            ids = self._corpus.ids(TRAIN, side)
            return _sha1(sentence_bytes(ids, self._subword, 0, len(ids)))
        # The artifact has no raw training text: only the archives have it.
        corpora = self._pipeline.corpora[TRAIN]
        if not all(self._is_here(corpus) for corpus in corpora):
            return None
        return _sha1(self._raw_blocks(corpora, SIDES.index(side)))

    def _raw_blocks(self, corpora: Iterable[Corpus], side: int) -> Iterator[bytes]:
        """Yield the bytes of one side of corpora, one after the other as by `cat`."""
        for corpus in corpora:
            file, member = corpus.remote[side]
            yield from TextFile(self._pipeline.downloads.fetch(file), member).blocks()

    def _set_fact(self, fact: Fact) -> str | None:
        """Return a fact about a development or test set.

        The set called "dev" is that of the recipe, any other one is in the catalog.
        """
        if fact.text not in self._sets:
            self._sets[fact.text] = self._read_set(fact.text)
        pairs = self._sets[fact.text]
        if pairs is None:
            return None
        if fact.kind == "lines":
            return f"{len(pairs):,}"
        lines = [pair[self._set_langs.index(fact.lang)] for pair in pairs]
        if fact.kind == "plain":
            return _hash_lines(lines)
        tokenizations = self._corpus.tokenizations()
        tokenization = tokenizations.src if self._side(fact.lang) == "src" else tokenizations.tgt
        if fact.kind == "blob":
            # clean-corpus-n.perl removes spaces at the end of lines.
            tokenize = tokenization.tokenize if fact.text == DEV else tokenization.script_output
            return _hash_blob(map(tokenize, lines))
        subwords = list(split_lines(lines, tokenization, piece_splitter(self._corpus)))
        if fact.kind == "subwords":
            return _hash_lines(subwords)
        # Published counts include an end symbol per line, as in fairseq.
        return f"{sum(len(line.split()) + 1 for line in subwords):,}"

    @progress.prefix("verify")
    def _read_set(self, name: str) -> list[Pair] | None:
        """Read a set, or return None if it is in the catalog and not downloaded."""
        src, tgt = self._set_langs
        if name == DEV:
            sides = [self._corpus.dev_lines(self._side(lang)) for lang in (src, tgt)]
            return list(zip(*sides, strict=True))
        corpus = find_corpus(name, Language.of(src), Language.of(tgt))
        if not self._is_here(corpus):
            return None
        return list(corpus.pairs(self._pipeline.downloads))

    def _is_here(self, corpus: Corpus) -> bool:
        """Return whether all archives of a corpus were downloaded, or are in the mirror."""
        paths = [self._pipeline.downloads.find(file) for file in corpus.downloads]
        return None not in paths


def _sha1(blocks: Iterable[bytes]) -> str:
    """Return the SHA-1 of bytes; others published it, so it must be this hash."""
    sha1 = hashlib.sha1(usedforsecurity=False)
    for block in blocks:
        sha1.update(block)
    return sha1.hexdigest()


def _hash_lines(lines: Iterable[str]) -> str:
    """Return the SHA-1 of a file with these lines."""
    return _sha1(f"{line}\n".encode() for line in lines)


def _hash_blob(lines: Iterable[str]) -> str:
    """Return the id that git gives to a file with these lines."""
    content = "".join(f"{line}\n" for line in lines).encode()
    return _sha1([f"blob {len(content)}\0".encode(), content])
