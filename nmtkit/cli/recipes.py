"""nmtkit recipes."""

from nmtkit.cli.options import command
from nmtkit.config.loading import bundled_recipes, load_recipe
from nmtkit.config.study import bundled_studies, load_study
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show


@command("nmtkit recipes")
def recipes(form: Form) -> None:
    groups = []
    for kind, paths, load in (
        ("recipe", bundled_recipes(), load_recipe),
        ("study", bundled_studies(), load_study),
    ):
        loaded = [(load(str(path)), path) for path in paths]
        groups.append([(kind, each.name, each.description, str(path)) for each, path in loaded])
    keys = ("kind", "name", "description", "path")
    value = [dict(zip(keys, row, strict=True)) for group in groups for row in group]
    show(form, value, [Grid("", ("", "name", "what it is", "file"), 4, groups)])
