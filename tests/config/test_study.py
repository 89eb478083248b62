"""The shipped studies: the rows of the paper and their numbers of parameters."""

import pytest

from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.config.study import Row, Study, bundled_studies, load_study
from nmtkit.stages.pipeline import Pipeline
from nmtkit.study.figures import study_table
from nmtkit.study.study_runs import study_pipelines
from nmtkit.utils.errors import UserError

# The rows of Table 3: perplexity, BLEU, parameters.
TABLE_3 = """
4.92 25.8 65 | 5.29 24.9 | 5.00 25.5 | 4.91 25.8 | 5.01 25.4 | 5.16 25.1 58 | 5.01 25.4 60
| 6.11 23.7 36 | 5.19 25.3 50 | 4.88 25.5 80 | 5.75 24.5 28 | 4.66 26.0 168 | 5.12 25.4 53
| 4.75 26.2 90 | 5.77 24.6 | 4.95 25.5 | 4.67 25.3 | 5.47 25.7 | 4.92 25.7 | 4.33 26.4 213
"""


@pytest.fixture(params=[path.stem for path in bundled_studies()])
def study(request: pytest.FixtureRequest) -> Study:
    return load_study(request.param)


def study_runs(study: Study, settings: Settings, *overrides: str) -> dict[str, Pipeline]:
    """All runs of a study, by name."""
    runs: dict[str, Pipeline] = {}
    for row_runs in study_pipelines(study, settings, overrides).values():
        runs.update(row_runs)
    return runs


@pytest.fixture
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(tmp_path_factory.mktemp("runs"))


def test_published_figures_match_table_3() -> None:
    study = load_study("table-3")
    printed = [[float(figure) for figure in row.split()] for row in TABLE_3.split("|")]
    rows = [row.published for row in study.rows]
    found = [[row.perplexity, row.bleu, row.parameters] for row in rows]
    assert [[figure for figure in row if figure is not None] for row in found] == printed


def test_published_needs_same_test_set(settings: Settings) -> None:
    study = load_study("table-3")
    assert study_table(study, study_pipelines(study, settings)).rows[0].published
    pipelines = study_pipelines(study, settings, ['test.sets=["newstest2014"]'])
    assert not any(row.published for row in study_table(study, pipelines).rows)
    multi30k = load_study("table-3-multi30k")
    table = study_table(multi30k, study_pipelines(multi30k, settings))
    assert not any(row.published for row in table.rows)


def test_parameters_match_table_3(settings: Settings) -> None:
    study = load_study("table-3")
    rows = study_table(study, study_pipelines(study, settings)).rows
    for row in rows:
        if "parameters" in row.published:
            expected = 218 if row.name == "big" else row.published["parameters"]
            assert round(row.n_parameters / 1e6) == expected
    assert sum("parameters" in row.published for row in rows) == 11


def test_rows_differ_and_share_corpus(study: Study, settings: Settings) -> None:
    pipelines = study_runs(study, settings)
    assert len({pipeline.fingerprint("prepare") for pipeline in pipelines.values()}) == 1
    assert len({pipeline.fingerprint("train") for pipeline in pipelines.values()}) == len(pipelines)
    for pipeline in pipelines.values():
        recipe = pipeline.recipe
        assert recipe.averaging.n_checkpoints == 1
        assert recipe.test.sets == (recipe.corpus.dev,)
        assert (recipe.decoding.beam_size, recipe.decoding.length_penalty) == (4, 0.6)


def test_table_3_reuses_table_2_trainings(settings: Settings) -> None:
    pipelines = study_runs(load_study("table-3"), settings)
    for name, recipe in (("base", "wmt14-en-de-base"), ("big", "wmt14-en-de-big")):
        own = Pipeline(load_recipe(recipe), settings, recipe)
        assert pipelines[name].fingerprint("train") == own.fingerprint("train")


def test_row_seeds_and_override_order(
    settings: Settings,
) -> None:
    assert list(study_runs(load_study("table-3-multi30k"), settings))[:4] == [
        "base seed=1",
        "base seed=2",
        "base seed=3",
        "A-h1",
    ]
    rows = [Row(name="own", seeds=(0,), set=("model.dropout=0.5",)), Row(name="all")]
    study = load_study("table-3-multi30k").model_copy(update={"seeds": (7, 5), "rows": tuple(rows)})
    runs = study_runs(study, settings, "model.dropout=0.4")
    found = {name: (c.recipe.training.seed, c.recipe.model.dropout) for name, c in runs.items()}
    assert found == {"own": (0, 0.5), "all seed=7": (7, 0.4), "all seed=5": (5, 0.4)}
    mine = " training.seed = 5"
    own = study.model_copy(update={"rows": (Row(name="own", set=(mine,)),)})
    for changed, overrides in ((study, [mine]), (own, [])):
        with pytest.raises(UserError, match=rf"seeds = \[.*\], which '{mine}' would make equal"):
            study_runs(changed, settings, *overrides)


def test_rows_by_name_and_pattern() -> None:
    study = load_study("table-3")
    assert [row.name for row in study.select_rows("big, B-*")] == ["B-dk16", "B-dk32", "big"]
    assert len(study.select_rows(None)) == 20
