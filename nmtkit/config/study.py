"""A study: variants of one recipe, one a row of a table, beside figures that are published."""

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from nmtkit.config.loading import find_file, read_toml, recipes_dir, validate
from nmtkit.config.recipe import NAME, CountOrZero, Positive
from nmtkit.utils.errors import UserError
from nmtkit.utils.section import Section, did_you_mean

Overrides = Annotated[tuple[str, ...], Field(strict=False)]  # each as behind `--set`
Seeds = Annotated[tuple[CountOrZero, ...], Field(min_length=1, strict=False)]
SEED = "training.seed"


class Published(Section):
    perplexity: Positive | None = None  # per subword
    bleu: Positive | None = None
    parameters: Positive | None = None  # in millions


class Row(Section):
    name: Annotated[str, Field(pattern=NAME)]
    recipe: str | None = None  # in place of the study's
    set: Overrides = ()
    seeds: Seeds = ()  # in place of the study's
    published: Published = Published()


class Study(Section):
    """The recipe, what all rows have in common, and the rows; the first one is the base.

    Each row runs once with each of its seeds, or once with that of the recipe.
    """

    name: Annotated[str, Field(pattern=NAME)]
    description: str
    recipe: str
    bleu: Literal[  # beside the published one, as in `scores.json`
        "sacrebleu",
        "tokenized_bleu",
        "compound_split_bleu",
        "compound_split_bleu.score_quotes_replaced",
    ]
    set: Overrides = ()
    seeds: Seeds = ()
    rows: Annotated[tuple[Row, ...], Field(min_length=1, strict=False)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [row.name for row in self.rows]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{names.count(name)} rows are called {name}; rename one")
        for seeds in (self.seeds, *(row.seeds for row in self.rows)):
            for seed in seeds:
                if (n := seeds.count(seed)) > 1:
                    raise ValueError(f"seed {seed} is named {n} times in seeds; name it once")
        return self

    def runs_of(self, row: Row, overrides: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return all overrides of each run of a row, by its name; `overrides` are of `--set`."""
        together, seeds = (*self.set, *overrides, *row.set), row.seeds or self.seeds
        for override in together if seeds else ():
            if override.partition("=")[0].strip() == SEED:
                raise UserError(
                    f"row {row.name} of study {self.name} runs with seeds = {[*seeds]}, and "
                    f"{override!r} would make all of them one; leave out one of the two"
                )
        names = [f"{row.name} seed={seed}" for seed in seeds] if len(seeds) > 1 else [row.name]
        of_seeds = [(*together, f"{SEED}={seed}") for seed in seeds] or [together]
        return dict(zip(names, of_seeds, strict=True))

    def chosen(self, patterns: str | None) -> list[Row]:
        """Return the rows that comma-separated names, or patterns such as 'A-*', choose."""
        wanted = [pattern.strip() for pattern in (patterns or "*").split(",")]
        names = [row.name for row in self.rows]
        for pattern in wanted:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise UserError(
                    f"--rows: study {self.name} has no row {pattern!r}"
                    f"{did_you_mean(pattern, names)}; its rows are {', '.join(names)}"
                )
        return [row for row in self.rows if any(fnmatchcase(row.name, each) for each in wanted)]


def bundled_studies() -> list[Path]:
    return sorted((recipes_dir() / "studies").glob("*.toml"), key=lambda path: path.stem)


def load_study(name_or_path: str) -> Study:
    """Read a study by bare name or by path. A recipe's path is relative to the study's file."""
    path = find_file("study", name_or_path, [recipes_dir() / "studies"])
    study = validate(Study, read_toml(path), (), origin=str(path))
    rows = tuple(
        row.model_copy(update={"recipe": row.recipe and _beside(row.recipe, path)})
        for row in study.rows
    )
    return study.model_copy(update={"recipe": _beside(study.recipe, path), "rows": rows})


def _beside(recipe: str, study: Path) -> str:
    """Return a recipe that a study names, as it is named elsewhere."""
    is_path = recipe.endswith(".toml") or os.sep in recipe
    return str(study.parent / recipe) if is_path else recipe
