"""nmtkit score."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from nmtkit.analysis.lines import lines_grid, telling_lines
from nmtkit.analysis.test_sets import TestSet, check_length, named_test_set, own_test_set
from nmtkit.cli.options import Lang, Lowercase, Plain, References, command, either, option
from nmtkit.cli.options import TestSet as TestSetName
from nmtkit.config.settings import Settings
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.scores import SCORE_NAMES, hows, kind_of, shown
from nmtkit.reporting.show import Form, show
from nmtkit.sources.kinds import read_plain
from nmtkit.stages.pipeline import Pipeline
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import TREE

Worst = Annotated[
    int | None, option("N", "Also show the N worst lines, by chrF or F1.", "--worst", least=1)
]


class Metric(StrEnum):
    """What is computed of files."""

    BLEU = "bleu"
    CHRF = "chrf"
    TER = "ter"
    BRACKET_F1 = "bracket-f1"


@command("nmtkit score demo", force=["score"])
def _of_recipe(pipeline: Pipeline, form: Form, worst: Worst = None) -> None:
    from nmtkit.evaluation.translations import read_scores, translated_sets
    from nmtkit.stages import score as stage

    scored = stage.run(pipeline)
    scores = read_scores(scored)
    if worst is not None:
        lang, lowercase = pipeline.recipe.corpus.tgt_lang, pipeline.recipe.scoring.lowercase
        for each in translated_sets(pipeline.need("translate")):
            src, hyps, refs = each.read()
            if refs:
                of_set = TestSet(each.name, lang, refs, src)
                telling = telling_lines([hyps], of_set, worst, lowercase=lowercase)
                scores[each.name]["worst"] = telling
    show(form, scores, score_parts(scores))


@command("nmtkit score hyp.de ref.de --lang de", "mirror")
def _of_files(
    settings: Settings,
    form: Form,
    names: list[str],
    references: References = None,
    lang: Lang = None,
    test_set: TestSetName = None,
    lowercase: Lowercase = False,
    plain: Plain = False,
    metrics: Annotated[
        list[Metric] | None,
        option(
            "NAME",
            "Of files: bleu, the default, chrf, ter, or bracket-f1 of trees; repeatable.",
            "--metric",
        ),
    ] = None,
    worst: Worst = None,
) -> None:
    metrics = metrics or [Metric.BLEU]
    of_trees = Metric.BRACKET_F1 in metrics
    if of_trees and (len(metrics) > 1 or lang or lowercase or test_set):
        raise UserError(
            "--metric bracket-f1 is of trees; leave out --lang, --lowercase, --test-set and any "
            "other --metric"
        )
    if test_set is not None:
        if references:
            raise UserError("--test-set names the reference; leave out --ref")
        reference = named_test_set(test_set, lang, settings)
    else:
        if not references and len(names) == 2:
            references = [Path(names.pop())]
        if not references:
            raise UserError(f"name the reference of these {len(names)} files: add --ref FILE")
        if not (lang or of_trees):
            raise UserError("the language of the files is not known; add --lang, such as --lang de")
        reference = own_test_set(references, TREE.tag if of_trees else lang or "", plain=plain)
    scores = score_files(
        names, reference, metrics, lowercase=lowercase, worst=worst or 0, plain=plain
    )
    show(form, scores, score_parts(scores))


score = either(
    _of_recipe,
    _of_files,
    "NAME...",
    "A recipe; or translations and a reference; or, with --ref or --test-set, translations of "
    "several systems, of which one may be -, standard input.",
    is_recipe=lambda names, given: (
        len(names) < 2
        and not given["references"]
        and given["test_set"] is None
        and not any(Path(name).suffix not in ("", ".toml") for name in names)
    ),
)


def score_files(
    systems: Sequence[str],
    test_set: TestSet,
    metrics: Sequence[Metric] = (Metric.BLEU,),
    *,
    lowercase: bool = False,
    worst: int = 0,
    plain: bool = False,
) -> dict[str, Any]:
    """Return the scores of each system, by its file, or "-", in the format of `scores.json`."""
    from nmtkit.stages.score import describe, score_lines

    name, lang, refs = test_set.name, test_set.lang, test_set.references
    if Metric.TER in metrics and not lang.is_spaced:
        raise UserError(
            f"TER counts the words between spaces, and {lang} is written without spaces; leave out "
            "--metric ter"
        )
    if len(set(systems)) < len(systems):
        raise UserError(f"{' '.join(systems)} names a file twice; name each system once")
    read = {}
    for system in systems:
        path = Path("/dev/stdin" if system == "-" else system)
        read[system] = list(read_plain(path, is_plain=plain, in_order_of=test_set.order))
        check_length(path, read[system], name, refs[0])
    found = {
        system: {
            "test_set": describe(name, *refs),
            **score_lines(f"score: {system}", hyps, refs, lang, metrics, lowercase=lowercase),
        }
        for system, hyps in read.items()
    }
    for system, hyps in read.items() if worst else ():
        found[system]["worst"] = telling_lines([hyps], test_set, worst, lowercase=lowercase)
    return found


def score_parts(scores: Mapping[str, Any]) -> list[Grid | str]:
    """Return a table of scores, by test set or by system, then how each was counted."""
    of_sets = list(scores.values())
    rows = [
        (name, *(shown(each, key, with_interval=True) for each in of_sets))
        for key, name in SCORE_NAMES.items()
        if any(kind_of(key) in each for each in of_sets)
    ]
    columns = []
    for name, each in scores.items():
        test_set = each["test_set"]
        of_set = "" if name == test_set["name"] else f"{test_set['name']}, "
        columns.append(f"{name}\n{of_set}{test_set['lines']:,} lines")
    parts: list[Grid | str] = [Grid.of("", ["score", *columns], rows, 1)]
    parts += hows(of_sets)
    for name, each in scores.items():
        if worst := each.get("worst"):
            head = f"the worst of {name}"
            parts.append(lines_grid(worst["lines"], ["translation"], head, worst["metric"]))
            parts.append(f"{worst['metric']} of each line alone: {worst['signature']}")
    return parts
