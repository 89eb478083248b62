"""nmtkit verify."""

import re
from pathlib import Path
from typing import Annotated

import typer

from nmtkit.cli import options as opt
from nmtkit.cli.inputs import load_pipeline, recipe_names
from nmtkit.config.settings import RUNS, Settings
from nmtkit.rendering.grid import Grid
from nmtkit.rendering.show import Form, refuse_csv, show
from nmtkit.runs.checksums import verify_folder, verify_recipe
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.manifests import MANIFEST
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import counted

SHA1 = re.compile("[0-9a-f]{40}")
HASH_DIGITS = 12  # that are printed


def verify(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A recipe, or the folder of an artifact.",
            autocompletion=recipe_names,
            show_default=False,
        ),
    ],
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            help="Instead compare a recipe's prepared corpus with hashes and counts that others "
            "published for the same text.",
        ),
    ] = False,
    overrides: opt.Overrides = None,
    runs_dir: opt.RunsDir = RUNS,
    mirror: opt.Mirror = None,
    as_json: opt.Json = False,
    table: opt.Table = None,
) -> None:
    """Verify the checksums of an artifact and all its inputs.

    Example: nmtkit verify demo
    """
    settings = Settings(runs_dir, mirror=mirror)
    path = Path(run)
    if published:
        if path.is_dir():
            raise UserError(
                f"--published compares the corpus of a recipe, not a folder ({run}); pass a recipe"
            )
        form = Form(as_json, table)
        refuse_csv(form)
        _verify_published(load_pipeline(run, overrides, settings), form)
        return
    if path.is_dir():
        if overrides:
            raise UserError(
                f"--set cannot be used with a folder ({run}), whose values are fixed; omit --set"
            )
        if not (path / MANIFEST).exists():
            raise UserError(f"{run} has no {MANIFEST}; pass a recipe, or the folder of an artifact")
        verified = list(verify_folder(path, settings))
    else:
        verified = list(verify_recipe(load_pipeline(run, overrides, settings)))

    rows = []
    differences = []
    for part in verified:
        rows.append((part.what, "no" if part.differences else "yes", part.path))
        differences += part.differences
    grid = Grid.of("", ("artifact", "unchanged", "path"), rows, 3)
    show(Form(as_json, table), verified, [grid, *differences])
    if differences:
        count = counted(len(differences), "difference")
        raise UserError(f"{run} differs from its manifest or its inputs: {count} (see above)")


def _verify_published(pipeline: Pipeline, form: Form) -> None:
    """Print a line for each published fact, and the first difference of each published corpus.

    Raises:
        UserError: The prepared corpus differs from all published ones.
    """
    from nmtkit.runs.published import Comparison, compare_published  # imports the readers of text

    by_title: dict[str, list[Comparison]] = {}
    for comparison in compare_published(pipeline):
        by_title.setdefault(comparison.published_by, []).append(comparison)

    parts: list[Grid | str] = []
    has_match = False  # one of the published corpora does not differ
    for title, comparisons in by_title.items():
        rows = []
        for item in comparisons:
            published = _shortened(item.published)
            rows.append((item.text, item.fact, item.state, published, _shortened(item.found)))
        columns = ("text", "fact", "state", "published", "here")
        parts.append(Grid.of(title, columns, rows, 3))
        equal = [item for item in comparisons if item.state == "equal"]
        different = [item for item in comparisons if item.state == "different"]
        if different:
            first = different[0]
            count = counted(len(different), "difference")
            parts.append(
                f"{title}: {count}; the first is {first.fact} of {first.text}. To find the cause: "
                f"{first.hint}."
            )
        else:
            if equal:
                has_match = True
            parts.append(
                f"{title}: {len(equal)} of {len(comparisons)} facts are equal, none differs."
            )
    show(form, by_title, parts)
    if not has_match:
        raise UserError(
            f"the prepared corpus of {pipeline.recipe.name} differs from all published ones (see "
            "the first differences above)"
        )


def _shortened(value: str) -> str:
    """Shorten a hash to fit into a table; return another value as it is."""
    return f"{value[:HASH_DIGITS]}.." if SHA1.fullmatch(value) else value
