"""Find and read recipe files, and override their values."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmtkit.config.overrides import with_absolute_files
from nmtkit.config.recipe import DecodingConfig, Recipe
from nmtkit.config.toml import parse_toml, read_toml
from nmtkit.config.validation import validate
from nmtkit.utils.errors import UserError
from nmtkit.utils.section import did_you_mean


class NoFileError(UserError):
    """There is no such recipe or study."""


def recipes_dir() -> Path:
    """Return the folder of nmtkit's own recipes: `pipelines/`, or the wheel's copy of it."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "pipelines"
    return inside if inside.is_dir() else package.parent / "pipelines"


def bundled_recipes() -> list[Path]:
    """Return the files of nmtkit's own recipes."""
    return sorted(recipes_dir().glob("*.toml"))


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe.

    Args:
        name_or_path: The bare name of one of nmtkit's own recipes, or the path of a file.
        overrides: Values of `--set`: section.key=value.

    Raises:
        UserError: The recipe does not exist, or is not valid.
    """
    path = recipe_path(name_or_path)
    return _recipe(read_toml(path), path, overrides)


def parse_recipe(text: str, path: Path) -> Recipe:
    """Parse the text of a recipe that will be the file `path`."""
    return _recipe(parse_toml(text), path)


def _recipe(document: dict[str, Any], path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Validate the tables of a recipe.

    Args:
        document: The tables.
        path: The file of the recipe, to which paths in it are relative.
        overrides: Values of `--set`.
    """
    document = with_absolute_files(document, path.resolve().parent)
    return validate(Recipe, document, overrides, origin=str(path))


def override_decoding(
    decoding: DecodingConfig,
    beam_size: int | None = None,
    length_penalty: float | None = None,
    length_penalty_formula: str | None = None,
) -> DecodingConfig:
    """Return decoding settings with the values of the options of `translate`.

    Args:
        decoding: The settings of a bundle.
        beam_size: None keeps that of the bundle.
        length_penalty: None keeps that of the bundle.
        length_penalty_formula: None keeps that of the bundle.

    Raises:
        UserError: A value is not valid.
    """
    document = decoding.model_dump()
    if beam_size is not None:
        document["beam_size"] = beam_size
    if length_penalty is not None:
        document["length_penalty"] = length_penalty
    if length_penalty_formula is not None:
        document["length_penalty_formula"] = length_penalty_formula
    return validate(DecodingConfig, document, (), origin="settings of a bundle")


def recipe_path(name_or_path: str) -> Path:
    """Return the file of a recipe, by bare name or by path."""
    return find_file("recipe", name_or_path, [recipes_dir()])


def find_file(kind: str, name_or_path: str, folders: Sequence[Path]) -> Path:
    """Find a TOML file.

    Args:
        kind: "recipe" or "study", for the message.
        name_or_path: A path, which ends in .toml or contains a separator; or the bare name of a
            file in `folders`.
        folders: The folders of files that are found by name.

    Raises:
        NoFileError: There is no such file.
    """
    path = Path(name_or_path)
    if path.suffix == ".toml" or os.sep in name_or_path:
        candidates = [path]
    else:
        candidates = [folder / f"{path}.toml" for folder in folders]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    if path.is_dir():
        raise UserError(f"{name_or_path} is a folder, not a {kind}; pass the path of a TOML file")
    # A common mistake is to name one's own file without its path.
    own_file = f"./{path.stem}.toml"
    if Path(own_file).is_file():
        hint = f" (did you mean {own_file!r}?)"
    else:
        known = [f"./{file}" for file in Path().glob("*.toml")]
        for folder in folders:
            known += [file.stem for file in folder.glob("*.toml")]
        # The suffix alone makes no file similar.
        similar = [name for name in known if did_you_mean(path.stem, [Path(name).stem])]
        hint = did_you_mean(name_or_path, similar)
    if candidates == [path]:
        raise NoFileError(
            f"{name_or_path} does not exist{hint}; correct the path, or omit .toml for a {kind} "
            "that comes with nmtkit (see `nmtkit recipes`)"
        )
    raise NoFileError(
        f"unknown {kind} {name_or_path!r}{hint}; run `nmtkit recipes` to list those that come "
        "with nmtkit, or pass the path of your own file, such as ./mine.toml"
    )
