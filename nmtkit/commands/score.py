"""score: files of plain text against references; publishes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nmtkit import progress
from nmtkit.errors import UserError
from nmtkit.evaluation.bleu import count_scores
from nmtkit.evaluation.bracket_f1 import bracket_f1
from nmtkit.evaluation.chrf_ter import chrf, ter
from nmtkit.evaluation.plain_text import warnings
from nmtkit.languages import TREE, Language
from nmtkit.machine import Machine
from nmtkit.sources.kinds import read_plain
from nmtkit.sources.parallel import find_corpus
from nmtkit.stages.chain import fetch
from nmtkit.stages.score import describe, text_tools

STANDARD_INPUT = "-"


@dataclass(frozen=True)
class TestSet:
    """What translations are compared with: one or more references in one language."""

    name: str
    lang: Language
    references: Sequence[Sequence[str]]

    @property
    def is_of_trees(self) -> bool:
        """Return whether parse trees are compared, by bracket F1."""
        return self.lang == TREE


def own_test_set(paths: Sequence[Path], lang: str) -> TestSet:
    """Read references from files.

    Raises:
        UserError: the language is unknown, or a file is missing, damaged or not UTF-8.
    """
    language = TREE if lang == TREE.tag else Language.of(lang)
    if language == TREE and len(paths) > 1:
        raise UserError(f"bracket F1 has one reference, and {len(paths)} are named; name one")
    references = [list(read_plain(path)) for path in paths]
    for path, reference in zip(paths, references, strict=True):
        if len(reference) != (n_lines := len(references[0])):
            raise UserError(
                f"{path} has {len(reference):,} lines, but {paths[0]} has {n_lines:,}; give "
                "references of the same test set"
            )
    return TestSet(", ".join(path.name for path in paths), language, references)


def catalog_test_set(name: str, langpair: str, machine: Machine) -> TestSet:
    """Read the reference of a corpus of the catalog, which is downloaded unless it is here.

    Args:
        langpair: source and target language, such as "en-de".

    Raises:
        UserError: The catalog has no such corpus or language pair, the download fails, or its
            hash is not the published one.
    """
    src_lang, tgt_lang = Language.pair_of(langpair)
    corpus = find_corpus(name, src_lang, tgt_lang)
    pairs = corpus.pairs(partial(fetch, machine=machine))
    return TestSet(name, tgt_lang, [[reference for _, reference in pairs]])


def score_files(
    systems: Sequence[str],
    test_set: TestSet,
    *,
    lowercase: bool = False,
    with_chrf: bool = False,
    with_ter: bool = False,
) -> dict[str, Any]:
    """Compute the scores of each system's translations.

    Args:
        systems: the file of each, or "-" for standard input.
        lowercase: lower-case translations and references.
        with_chrf: compute chrF too.
        with_ter: compute TER too.

    Returns:
        The scores of each system, by its file, in the format of `scores.json`.

    Raises:
        UserError: a file is named twice, missing, damaged or not UTF-8, the numbers of lines
            differ, or a score cannot be computed in this language.
    """
    if with_ter and not test_set.lang.is_spaced:
        raise UserError(
            f"TER counts the words between spaces, and {test_set.lang} is written without spaces; "
            "leave out --ter"
        )
    if len(set(systems)) < len(systems):
        raise UserError(f"{' '.join(systems)} names a file twice; name each system once")
    references = test_set.references
    scores: dict[str, Any] = {}
    for system, hyps in {system: _translations(system, test_set) for system in systems}.items():
        progress.say(f"score: {system}")
        if test_set.is_of_trees:
            scores[system] = {
                "bracket_f1": bracket_f1(hyps, references[0]),
                "test_set": describe(test_set.name, *references),
            }
            continue
        for warning in warnings(hyps, references):
            progress.say(f"score: {system}: {warning}")
        found: dict[str, Any] = {
            **count_scores(hyps, *references, tools=text_tools(test_set.lang), lowercase=lowercase)
        }
        if with_chrf:
            found["chrf"] = chrf(hyps, *references, lowercase=lowercase)
        if with_ter:
            found["ter"] = ter(hyps, *references)
        scores[system] = {**found, "test_set": describe(test_set.name, *references)}
    return scores


def _translations(system: str, test_set: TestSet) -> list[str]:
    path = Path("/dev/stdin" if system == STANDARD_INPUT else system)
    hyps = list(read_plain(path))
    if len(hyps) != (n_lines := len(test_set.references[0])):
        raise UserError(
            f"{path} has {len(hyps):,} lines, but {test_set.name} has {n_lines:,}; give a "
            "translation of each line"
        )
    return hyps
