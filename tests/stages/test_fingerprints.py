"""Fingerprints of the stages: which values and texts change which fingerprints."""

from pathlib import Path

import pytest

from nmtkit.config.loading import bundled_recipes, load_recipe
from nmtkit.config.recipe import Recipe
from nmtkit.config.settings import RUNS, Settings
from nmtkit.evaluation.seed import DEFAULT_SEED, SEED
from nmtkit.sources.file_pair import FilePair
from nmtkit.stages.pipeline import STAGES, Pipeline
from nmtkit.utils.errors import UserError

CHANGES = [  # a value of the demo's recipe, and the first stage that must be rebuilt
    ("corpus.lowercase=true", "prepare"),
    ("corpus.lowercase='tokens'", "prepare"),
    ("corpus.max_tokens=17", "prepare"),
    ("corpus.train=['demo-train', 'demo-dev']", "prepare"),
    ("corpus.dev='demo-test'", "prepare"),
    ("corpus.drop_held_out=['demo-test']", "prepare"),
    ("subword.n_merges=17", "prepare"),
    ("subword.bpe_version=0.1", "prepare"),
    ("model.dropout=0.25", "train"),
    ("model.d_ff=17", "train"),
    ("training.seed=17", "train"),
    ("training.max_steps=17", "train"),
    ("training.weight_decay=0.1", "train"),
    ("training.patience=3", "train"),
    ("training.patience_metric='chrf'", "train"),
    ("corpus.train=[{ corpus = 'demo-train', weight = 2 }]", "train"),
    ("averaging.n_checkpoints=1", "average"),
    ("decoding.beam_size=17", "average"),
    ("test.sets=['demo-test', 'demo-dev']", "translate"),
    ("test.sets=['demo-dev']", "translate"),
    ("scoring.lowercase=true", "score"),
    ("scoring.sacrebleu_tokenizer='intl'", "score"),
]

# The shipped recipes, and their fingerprints by stage.
FINGERPRINTS = Path(__file__).with_name("fingerprints.txt")


def fingerprints(recipe: Recipe) -> dict[str, str]:
    pipeline = Pipeline(recipe, Settings(RUNS), recipe.name)
    return {stage: pipeline.fingerprint(stage) for stage in STAGES}


def with_files(recipe: Recipe, folder: Path, text: str = "a\n") -> Recipe:
    """The recipe with a user's own training text, which is written to `folder`."""
    folder.mkdir()
    for side in ("src", "tgt"):
        (folder / side).write_text(text, encoding="utf-8", newline="\n")
    pair = FilePair(src=str(folder / "src"), tgt=str(folder / "tgt"))
    corpus = recipe.corpus.model_copy(update={"train": (pair,)})
    return recipe.model_copy(update={"corpus": corpus})


@pytest.mark.parametrize(("change", "first"), CHANGES)
def test_changed_value_changes_later_stages(change: str, first: str) -> None:
    before = fingerprints(load_recipe("demo"))
    after = fingerprints(load_recipe("demo", [change]))
    names = list(STAGES)
    changed = [stage for stage in names if before[stage] != after[stage]]
    assert changed == names[names.index(first) :]


def test_bundled_fingerprints_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The artifacts of users are found by these names.

    A new key of recipes must not change them: a recipe that does not set it has the same meaning
    as before. Change the table only in a commit that changes a value of the recipe, the text that
    it names, or `FORMAT`.
    """
    monkeypatch.delenv(SEED, raising=False)
    found = ""
    for path in bundled_recipes():
        # The Penn Treebank has no published hash.
        if "$PENN_TREEBANK" not in path.read_text(encoding="utf-8"):
            row = fingerprints(load_recipe(path.stem))
            found += f"{path.stem}\n{' '.join(row.values())}\n"
    assert found == FINGERPRINTS.read_text(encoding="utf-8")


def test_recipe_sections_have_one_stage() -> None:
    sections = [section for sections in STAGES.values() for section in sections]
    assert sorted(sections) == sorted(set(Recipe.model_fields) - {"name", "description"})


def test_seed_of_intervals_changes_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    demo = load_recipe("demo")
    monkeypatch.delenv(SEED, raising=False)
    unset = fingerprints(demo)
    monkeypatch.setenv(SEED, DEFAULT_SEED)
    assert fingerprints(demo) == unset
    monkeypatch.setenv(SEED, "7")
    other = fingerprints(demo)
    assert [stage for stage in STAGES if other[stage] != unset[stage]] == ["score"]
    monkeypatch.setenv(SEED, "seven")
    with pytest.raises(UserError, match="SACREBLEU_SEED is 'seven'"):
        Pipeline(demo, Settings(RUNS), demo.name).fingerprint("score")


def test_fingerprint_by_content_of_files(tmp_path: Path) -> None:
    demo = load_recipe("demo")
    here = fingerprints(with_files(demo, tmp_path / "here"))
    there = fingerprints(with_files(demo, tmp_path / "there"))
    other = fingerprints(with_files(demo, tmp_path / "other", text="b\n"))
    assert here == there
    assert all(here[stage] != other[stage] for stage in STAGES)
