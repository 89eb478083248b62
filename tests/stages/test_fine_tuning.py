"""Fine-tuning: a pipeline that uses the vocabulary and the weights of a bundle."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from chains import tiny_pipeline
from safetensors.torch import load_file

from nmtkit.config.loading import load_recipe
from nmtkit.config.recipe import BundleConfig, SentencePieceConfig
from nmtkit.runs.listing import states
from nmtkit.sources.file_pair import FilePair
from nmtkit.stages import average, prepare, score, train, translate
from nmtkit.stages.pipeline import STAGES, Pipeline
from nmtkit.store.records import file_sha256
from nmtkit.training.checkpoint import checkpoints
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language

NO_LEARNING = {"learning_rate_scale": 1e-30}
OTHER_DROPOUT = {"dropout": 0.5, "attention_dropout": 0.3}
SUBWORDS = {"bpe": None, "sentencepiece": SentencePieceConfig(method="sentencepiece", n_tokens=263)}


@pytest.fixture(scope="module")
def parent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A pipeline that has published a bundle."""
    pipeline = tiny_pipeline(tmp_path_factory.mktemp("parent"))
    if subword := SUBWORDS[getattr(request, "param", "bpe")]:
        pipeline = changed(pipeline, subword=subword)
    for stage in (prepare, train, average):
        stage.run(pipeline)
    return pipeline


def bundle_of(pipeline: Pipeline) -> Path:
    return pipeline.need("average").path


def changed(pipeline: Pipeline, **sections: Any) -> Pipeline:
    """The pipeline with other sections; a dictionary changes only some keys of a section."""
    updates = {}
    for name, value in sections.items():
        if isinstance(value, dict):
            updates[name] = getattr(pipeline.recipe, name).model_copy(update=value)
        else:
            updates[name] = value
    return Pipeline(pipeline.recipe.model_copy(update=updates), pipeline.settings, "test")


def child_of(parent: Pipeline, bundle: Path, folder: Path, **sections: Any) -> Pipeline:
    """A pipeline that fine-tunes `bundle` on other text, in the same folder of artifacts."""
    for name in ("src", "tgt"):
        (folder / name).write_text("b a\na\n" * 3, encoding="utf-8", newline="\n")
    text = FilePair(src=str(folder / "src"), tgt=str(folder / "tgt"))
    training = {"start_from": str(bundle), **sections.pop("training", {})}
    child = changed(
        parent,
        corpus={"train": (text,), "dev": text},
        subword=BundleConfig(method="bundle", path=str(bundle)),
        training=training,
    )
    return changed(child, **sections)


@pytest.mark.parametrize("parent", SUBWORDS, indirect=True)
def test_child_starts_from_bundle(
    parent: Pipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundle_of(parent)
    child = child_of(parent, bundle, tmp_path, training=NO_LEARNING, model=OTHER_DROPOUT)
    for stage in (prepare, train, average, translate, score):
        stage.run(child)
    names = {path.name for path in bundle.iterdir()}
    subwords = names & {"codes.bpe", "vocabulary.tsv", "sentencepiece.model"}
    assert subwords
    for name in (*subwords, "tokenization.json"):
        for place in (child.need("prepare").path, child.need("average").path):
            assert (place / name).read_bytes() == (bundle / name).read_bytes()
    [checkpoint] = checkpoints(child.need("train").path / "checkpoints")
    weights = load_file(checkpoint / "model.safetensors")
    start = load_file(bundle / "model.safetensors")
    torch.testing.assert_close(weights, start, atol=1e-30, rtol=0)  # zeros change by less
    printed = capsys.readouterr().err
    is_bpe = "codes.bpe" in subwords  # sentencepiece encodes unknown characters as bytes
    assert ("warning: prepare: 6 tokens are unknown" in printed) == is_bpe
    assert f"the vocabulary of {bundle}\n" in printed
    assert f"the weights of {bundle}\n" in printed


def test_fingerprint_by_content_of_bundle(parent: Pipeline, tmp_path: Path) -> None:
    bundle = bundle_of(parent)
    copy = tmp_path / "copy"
    other = tmp_path / "other"
    shutil.copytree(bundle, copy)
    variant = changed(parent, decoding={"beam_size": 2})
    average.run(variant)
    shutil.copytree(bundle_of(variant), other)
    pipelines = [child_of(parent, path, tmp_path) for path in (bundle, copy, other)]
    for stage in STAGES:
        here, there, changed_bundle = (pipeline.fingerprint(stage) for pipeline in pipelines)
        assert here == there
        assert here != changed_bundle
    manifest = json.dumps([pipelines[0].depends_on(stage) for stage in STAGES])
    assert str(bundle) not in manifest
    hashes = pipelines[0].depends_on("train")["bundle"]
    assert hashes["model.safetensors"] == file_sha256(bundle / "model.safetensors")


@pytest.mark.parametrize(
    ("section", "changes", "theirs", "ours"),
    [
        ("corpus", {"lowercase": True}, "lowercase = false", "lowercase = true"),
        (
            "corpus",
            {"src_lang": Language.of("fr"), "tokenizer": "none"},
            'src_lang = "en", tokenizer = "moses"',
            'src_lang = "fr", tokenizer = "none"',
        ),
        ("corpus", {"tgt_lang": Language.of("fr")}, 'tgt_lang = "de"', 'tgt_lang = "fr"'),
        (
            "model",
            {"d_ff": 16, "norm": "pre"},
            'd_ff = 8, norm = "post"',
            'd_ff = 16, norm = "pre"',
        ),
    ],
)
def test_different_recipe_is_refused(
    parent: Pipeline, tmp_path: Path, section: str, changes: dict[str, Any], theirs: str, ours: str
) -> None:
    bundle = bundle_of(parent)
    pipeline = changed(child_of(parent, bundle, tmp_path), **{section: changes})
    with pytest.raises(UserError) as refused:
        prepare.run(pipeline)
    message = str(refused.value)
    assert str(bundle) in message
    assert f"[{section}] {theirs}, " in message
    assert ours in message
    assert {state.state for state in states(pipeline)} == {"unknown"}


def test_other_vocabulary_is_refused(parent: Pipeline, tmp_path: Path) -> None:
    bundle = bundle_of(parent)
    child = child_of(parent, bundle, tmp_path)
    learns = changed(child, subword=parent.recipe.subword)
    prepare.run(learns)
    with pytest.raises(UserError) as refused:
        train.run(learns)
    assert f"[training] start_from = {bundle} " in str(refused.value)
    assert f'method = "bundle" and path = "{bundle}"' in str(refused.value)


def test_bundle_path_relative_to_recipe(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "pipelines" / "demo.toml").read_text(encoding="utf-8")
    text = text.replace('"bpe"\nn_merges = 2_500', '"bundle"\npath = "bundles/a"')
    text = text.replace("seed = 1", 'seed = 1\nstart_from = "bundles/b"')
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8", newline="\n")
    recipe = load_recipe(str(tmp_path / "mine.toml"))
    assert recipe.subword == BundleConfig(method="bundle", path=str(tmp_path / "bundles/a"))
    assert recipe.training.start_from == str(tmp_path / "bundles/b")
