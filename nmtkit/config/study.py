"""A study: variants of one recipe, the rows of a table, and published figures to compare with."""

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from nmtkit.config.loading import (
    find_file,
    other_kind,
    read_toml,
    recipes_dir,
    studies_dir,
    validate,
)
from nmtkit.config.recipe import NAME, CountOrZero
from nmtkit.utils.errors import UserError
from nmtkit.utils.section import Positive, Section, did_you_mean

Overrides = Annotated[tuple[str, ...], Field(strict=False)]  # values of `--set`
Seeds = Annotated[tuple[CountOrZero, ...], Field(min_length=1, strict=False)]
SEED = "training.seed"


class Published(Section):
    """Published figures of a row."""

    perplexity: Positive | None = None  # per subword
    bleu: Positive | None = None
    parameters: Positive | None = None  # in millions


class Row(Section):
    """A variant of the recipe."""

    name: Annotated[str, Field(pattern=NAME)]
    recipe: str | None = None  # instead of the study's
    set: Overrides = ()
    seeds: Seeds = ()  # instead of the study's
    published: Published = Published()


class Study(Section):
    """A recipe with common overrides, and the rows; the first row is the base.

    A row runs once per seed, or once with the seed of the recipe if it has none.
    """

    name: Annotated[str, Field(pattern=NAME)]
    description: str
    recipe: str
    bleu: Literal[  # the score of `scores.json` to compare with the published one
        "sacrebleu",
        "tokenized_bleu",
        "compound_split_bleu",
        "compound_split_bleu.score_quotes_replaced",
    ]
    published_test_set: str | None = None  # of the published figures; rows with another have none
    set: Overrides = ()
    seeds: Seeds = ()
    rows: Annotated[tuple[Row, ...], Field(min_length=1, strict=False)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        # Runs and results are listed by the name of the row.
        names = [row.name for row in self.rows]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{names.count(name)} rows are called {name}; rename one")
        for seeds in [self.seeds] + [row.seeds for row in self.rows]:
            for seed in seeds:
                n = seeds.count(seed)
                if n > 1:
                    raise ValueError(f"seed {seed} occurs {n} times in seeds; list it once")
        return self

    def row_runs(self, row: Row, overrides: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return the runs of a row: their overrides by name.

        Args:
            overrides: Values of `--set` on the command line.

        Raises:
            UserError: An override sets the seed of a row that has several.
        """
        row_overrides = (*self.set, *overrides, *row.set)
        seeds = row.seeds or self.seeds
        if not seeds:
            return {row.name: row_overrides}
        for override in row_overrides:
            if override.partition("=")[0].strip() == SEED:
                raise UserError(
                    f"row {row.name} of study {self.name} runs with seeds = {list(seeds)}, which "
                    f"{override!r} would make equal; remove the seeds or the override"
                )
        # A row with a single seed keeps its short name.
        runs = {}
        for seed in seeds:
            name = f"{row.name} seed={seed}" if len(seeds) > 1 else row.name
            runs[name] = (*row_overrides, f"{SEED}={seed}")
        return runs

    def select_rows(self, patterns: str | None) -> list[Row]:
        """Select rows by the value of `--rows`.

        Args:
            patterns: Comma-separated names, or patterns such as 'A-*'. None selects all rows.

        Raises:
            UserError: No row matches one of them.
        """
        names = [row.name for row in self.rows]
        selected: set[str] = set()
        for text in (patterns or "*").split(","):
            pattern = text.strip()
            matches = [name for name in names if fnmatchcase(name, pattern)]
            if not matches:
                raise UserError(
                    f"--rows: study {self.name} has no row "
                    f"{pattern!r}{did_you_mean(pattern, names)}; choose from {', '.join(names)}"
                )
            selected.update(matches)
        return [row for row in self.rows if row.name in selected]


def bundled_studies() -> list[Path]:
    """Return the files of nmtkit's own studies."""
    return sorted(studies_dir().glob("*.toml"), key=lambda path: path.stem)


def is_study(name_or_path: str) -> bool:
    """Return whether a file is a study. Only studies have rows.

    Args:
        name_or_path: The bare name of one of nmtkit's own recipes or studies, or the path of a
            file.

    Raises:
        UserError: The file does not exist, or cannot be read.
    """
    path = find_file("recipe or study", name_or_path, [recipes_dir(), studies_dir()])
    return "rows" in read_toml(path)


def load_study(name_or_path: str) -> Study:
    """Read a study.

    Args:
        name_or_path: The bare name of one of nmtkit's own studies, or the path of a file. Paths of
            recipes in the file are relative to it.

    Raises:
        UserError: The study does not exist, or is not valid.
    """
    path = find_file("study", name_or_path, [studies_dir()])
    document = read_toml(path)
    if "corpus" in document:
        raise other_kind("study", name_or_path)
    study = validate(Study, document, (), origin=str(path))
    rows = []
    for row in study.rows:
        recipe = _recipe_name(row.recipe, path) if row.recipe else row.recipe
        rows.append(row.model_copy(update={"recipe": recipe}))
    recipe = _recipe_name(study.recipe, path)
    return study.model_copy(update={"recipe": recipe, "rows": tuple(rows)})


def _recipe_name(recipe: str, study: Path) -> str:
    """Return the bare name of a recipe, or its path relative to the current folder.

    Args:
        recipe: Its bare name, or its path relative to the study.
    """
    is_path = recipe.endswith(".toml") or os.sep in recipe
    return str(study.parent / recipe) if is_path else recipe
