"""A prepared corpus and the test sets of a recipe in a folder, as other toolkits read text."""

import os
from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile
from typing import Final

from nmtkit import __version__
from nmtkit.corpus.bpe_subword import BpeSubword
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.prepared import SIDES, PreparedCorpus
from nmtkit.corpus.subword import Subword
from nmtkit.export.model_card import CARD, write_template
from nmtkit.interchange.text_export import (
    count_pieces,
    piece_splitter,
    sentence_bytes,
    split_lines,
    write_vocabularies,
)
from nmtkit.rendering.grid import markdown
from nmtkit.sources.source import Row
from nmtkit.stages.pipeline import Pipeline, content_hash
from nmtkit.store.files import check_free_space, delete, draft_next_to, move
from nmtkit.store.journal import Journal
from nmtkit.store.manifests import TEMPORARY, write_manifest
from nmtkit.store.records import canonical_json, write_lines
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError

TRAIN: Final = "train"
DEV: Final = "dev"
PAIRS_PER_PART = 100_000  # between two entries of the journal
BYTES_PER_ID = 6  # of a piece with its space, about; 5.1 in English-German news


@progress.prefix("export")
def export_text(pipeline: Pipeline, folder: Path) -> None:
    """Write a new folder with the prepared corpus of a recipe and its test sets in pieces.

    The folder is written completely or not at all; an interrupted export is resumed.

    Args:
        pipeline: The recipe, whose corpus is prepared.

    Raises:
        UserError: The folder exists, the corpus is not prepared, or two files would have the same
            name.
    """
    corpus = PreparedCorpus(pipeline.need("prepare"))
    subword = corpus.subword()
    langs = [str(pipeline.recipe.corpus.src_lang), str(pipeline.recipe.corpus.tgt_lang)]
    _check_names(pipeline)

    # All test sets are downloaded and read before anything is written.
    sets: dict[str, list[Row]] = {}
    identities = {}
    for source in pipeline.corpora["sets"]:
        sets[source.name] = list(source.rows(pipeline.downloads))
        identities[source.name] = source.identity()

    counts = count_pieces(corpus, subword)
    origin = {"corpus": content_hash(corpus.artifact), "sets": canonical_json(identities)}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with draft_next_to(folder) as draft:
        if os.path.lexists(folder):
            raise UserError(f"{folder} already exists; pass the path of a new folder")
        journal = Journal(draft / TEMPORARY, draft, origin)
        try:
            _write_sets(draft, corpus, sets, langs)
            _write_train(draft, corpus, subword, langs, journal)
        except BaseException:
            if journal[TRAIN] is None:
                delete(draft)
            raise
        write_vocabularies(draft, counts, langs)
        model = corpus.subword_model()
        copyfile(model, draft / model.name)
        _write_card(draft, corpus, pipeline.recipe.name, list(sets), langs)
        delete(journal.folder)
        depends_on = {"prepare": pipeline.fingerprint("prepare"), "sets": identities}
        write_manifest(draft, {"kind": "export", "depends_on": depends_on})
        move(draft, folder)


def _check_names(pipeline: Pipeline) -> None:
    """Refuse test sets whose files would have the names of the training or development text."""
    for source in pipeline.corpora["sets"]:
        for name in (TRAIN, DEV):
            if source.name.lower() == name:  # not all disks distinguish case
                raise UserError(
                    f"the test set {source.name} would overwrite the {name} text; set another "
                    "name for it in [test] sets"
                )


def _write_sets(
    draft: Path, corpus: PreparedCorpus, sets: dict[str, list[Row]], langs: Sequence[str]
) -> None:
    """Write the development set and the test sets in pieces.

    Args:
        draft: The folder of the files.
        sets: The test sets: rows of a source and its references (none, one or more).
        langs: The languages of source and target.
    """
    texts: dict[str, list[list[str]]] = {DEV: [corpus.dev_lines(side) for side in SIDES]}
    for name, rows in sets.items():
        # Other toolkits read one reference.
        sides = [list(side) for side in zip(*rows, strict=True)]
        if len(sides) > len(SIDES):
            progress.warn(f"{name}: only the first of {len(sides) - 1} references is exported")
        texts[name] = sides[: len(SIDES)]
    split = piece_splitter(corpus)
    tokenizations = corpus.tokenizations()
    for name, sides in texts.items():
        both = (tokenizations.src, tokenizations.tgt)
        for lines, tokenization, lang in zip(sides, both, langs, strict=False):
            write_lines(draft / f"{name}.{lang}", split_lines(lines, tokenization, split))


def _write_train(
    draft: Path, corpus: PreparedCorpus, subword: Subword, langs: Sequence[str], journal: Journal
) -> None:
    """Write the part of the training text that is missing.

    Args:
        draft: The folder of the files.
        langs: The languages of source and target.
    """
    paths = [draft / f"{TRAIN}.{lang}" for lang in langs]
    n_pairs = corpus.counts().sizes[TRAIN].pairs
    n_done: int = journal[TRAIN] or 0
    n_bytes = 0
    for side in SIDES:
        offsets = corpus.ids(TRAIN, side).offsets
        n_bytes += BYTES_PER_ID * int(offsets[-1] - offsets[n_done])
    check_free_space(draft, n_bytes, "exporting the training text")

    with progress.task("training text", unit="pairs", total=n_pairs) as task:
        task.advance(n_done)
        for start in range(n_done, n_pairs, PAIRS_PER_PART):
            stop = min(start + PAIRS_PER_PART, n_pairs)
            for side, path in zip(SIDES, paths, strict=True):
                # Opened for each part, since the pages of a mapped file stay in memory until it
                # is closed.
                ids = corpus.ids(TRAIN, side)
                with journal.reopen(path) as file:
                    file.writelines(sentence_bytes(ids, subword, start, stop))
            journal.commit(TRAIN, stop, *paths)
            task.advance(stop - start)


def _write_card(
    folder: Path, corpus: PreparedCorpus, name: str, sets: Sequence[str], langs: Sequence[str]
) -> None:
    """Write README.md into the folder of an exported corpus.

    Args:
        sets: The names of the test sets.
        langs: The languages of source and target.
    """
    tokenizations = corpus.tokenizations()
    values = {
        "name": name,
        "src": langs[0],
        "tgt": langs[1],
        "size": corpus.counts().sizes["train"],
        "version": __version__,
        "fingerprint": corpus.artifact.manifest.fingerprint,
        "sets": sets,
        "test_prefixes": ",".join(f"DIR/{test_set}" for test_set in sets),
        "model": corpus.subword_model().name,
        "is_bpe": isinstance(corpus.subword(), BpeSubword),
        "processing": [_processing(tokenizations.src), _processing(tokenizations.tgt)],
        "markdown": markdown,
    }
    write_template(folder / CARD, "exported_text.md.j2", values)


def _processing(tokenization: Tokenization) -> str:
    """Describe the processing of raw text before it was split into subwords."""
    if tokenization.has_trees:
        return "linearized parse trees"
    steps = []
    if tokenization.normalize_punctuation:
        steps.append("normalize-punctuation.perl")
    if tokenization.lowercase is True:
        steps.append("lowercased")
    if tokenization.tokenizer == "moses":
        hyphens = "-a " if tokenization.aggressive_hyphens else ""
        steps.append(f"tokenizer.perl {hyphens}-l {tokenization.lang}")
    if tokenization.lowercase == "tokens":
        steps.append("lowercase.perl")
    return ", ".join(steps) or "none"
