"""nmtkit recipes."""

from nmtkit.cli import options as opt
from nmtkit.config.loading import bundled_recipes, load_recipe, recipes_dir
from nmtkit.config.study import bundled_studies, load_study
from nmtkit.rendering.grid import Grid
from nmtkit.rendering.show import Form, show


def recipes(as_json: opt.Json = False, table: opt.Table = None) -> None:
    """List the recipes and studies that come with nmtkit.

    Example: nmtkit recipes
    """
    recipe_rows = []
    for path in bundled_recipes():
        recipe = load_recipe(str(path))
        recipe_rows.append(("recipe", recipe.name, recipe.description, str(path)))
    study_rows = []
    for path in bundled_studies():
        study = load_study(str(path))
        study_rows.append(("study", study.name, study.description, str(path)))

    # JSON has one list, and the table two groups.
    keys = ("kind", "name", "description", "path")
    records = [dict(zip(keys, row, strict=True)) for row in recipe_rows + study_rows]
    columns = ("", "name", "description", "file")
    grid = Grid("", columns, len(columns), [recipe_rows, study_rows])
    parts: list[Grid | str] = [grid]
    if table is None:
        # Paths would make the table too wide.
        parts = [grid.without(columns.index("file")), f"files: {recipes_dir()}"]
    show(Form(as_json, table), records, parts)
