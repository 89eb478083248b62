"""`nmtkit average` of bundles and checkpoints: the mean of their weights, as a bundle."""

import dataclasses
import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from bundles import N_ROWS, peaked_model, publish_bundle
from chains import tiny_pipeline, train_until_killed
from models import tiny
from safetensors.torch import load_file, save_file
from system.command import flip_byte
from torch import Tensor
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.cli.average import average
from nmtkit.config.model import DecodingConfig, ModelConfig
from nmtkit.decoding.bundle import open_bundle, write_bundle
from nmtkit.model.weights import MODEL, Description
from nmtkit.stages import average as stage
from nmtkit.stages import prepare, train
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.artifacts import publish_directory
from nmtkit.utils.errors import UserError

WEIGHTS = "model.safetensors"


def mean_of(folders: list[Path], place: Path) -> Path:
    average(names=list(map(str, folders)), output=place)
    return place


def sibling_of(bundle: Path, place: Path, sibling: int = 3, **changes: Any) -> Path:
    """Publish a bundle with the vocabulary of another one and similar weights."""
    text = [bundle / name for name in ("codes.bpe", "vocabulary.tsv", "tokenization.json")]
    config = open_bundle(bundle).description.config
    config = ModelConfig.model_validate({**config.model_dump(), **changes})
    draft = place.with_name(f"{place.name}-draft")
    draft.mkdir()
    decoding = DecodingConfig(beam_size=3, length_penalty=0.6, max_extra_tokens=4)
    description = Description(config=config, n_rows=N_ROWS)
    model = peaked_model(config, N_ROWS, seed=1)
    torch.manual_seed(1_000 + sibling)
    weights = {
        name: parameter.detach() + sibling * 0.1 * torch.randn_like(parameter)
        for name, parameter in model.named_parameters()
    }
    write_bundle(draft, text, description, decoding, weights)
    publish_directory(draft, place, {"kind": "average"})
    return place


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("bundles")
    first = publish_bundle(folder / "first", tiny(), 1)
    second = sibling_of(first, folder / "1", 1)
    third = sibling_of(first, folder / "2", 2)
    return [first, second, third]


def mean_by_hand(folders: list[Path], name: str) -> Tensor:
    return torch.stack([load_file(path / WEIGHTS)[name].double() for path in folders]).mean(0)


def assert_mean(place: Path, folders: list[Path]) -> None:
    mean = load_file(open_bundle(place).verified_weights())
    for name, weight in mean.items():
        assert torch.equal(weight, mean_by_hand(folders, name).float()), name


def test_mean_of_bundles(bundles: list[Path], tmp_path: Path) -> None:
    place = mean_of(bundles, tmp_path / "mean")
    assert_mean(place, bundles)
    assert (place / MODEL).read_bytes() == (bundles[0] / MODEL).read_bytes()


def assert_refused(folders: list[Path], tmp_path: Path, match: str) -> None:
    with pytest.raises(UserError, match=match):
        mean_of(folders, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"n_heads": 6, "d_k": 2, "d_v": 2},
        {"positions": "fairseq"},
        {"neighbourhood": 3},
        {"norm": "pre"},
        {"n_layers": 1},
    ],
)
def test_model_values_are_compared(
    bundles: list[Path], tmp_path: Path, changes: dict[str, Any]
) -> None:
    other = sibling_of(bundles[0], tmp_path / "other", **changes)
    for folders in ([other, *bundles], [*bundles, other]):
        assert_refused(folders, tmp_path, str(other))
        assert_refused(folders, tmp_path, ".*".join(f"{key} = " for key in changes))


def test_dropout_may_differ(bundles: list[Path], tmp_path: Path) -> None:
    other = sibling_of(bundles[0], tmp_path / "b", dropout=0.5, attention_dropout=0.2)
    folders = [bundles[0], other]
    assert_mean(mean_of(folders, tmp_path / "mean"), folders)


@pytest.mark.parametrize("name", ["codes.bpe", "vocabulary.tsv", "tokenization.json"])
def test_vocabulary_is_compared(bundles: list[Path], tmp_path: Path, name: str) -> None:
    other = Path(shutil.copytree(bundles[1], tmp_path / "other"))
    text = (other / name).read_text(encoding="utf-8")
    if name == "tokenization.json":
        text = text.replace('"lowercase": false', '"lowercase": true')
    else:  # swap two lines
        first, *middle, last, end = text.split("\n")
        text = "\n".join([first, *middle[:-1], last, middle[-1], end])
    rewrite(other, {name: text.encode("utf-8")})
    open_bundle(other)  # it is valid
    assert_refused([bundles[0], other], tmp_path, "another vocabulary or tokenization")


def rewrite(folder: Path, files: dict[str, bytes], **changes: Any) -> None:
    """Republish a folder with other files and other values in its manifest."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    (folder / "manifest.json").unlink()
    for name, content in files.items():
        (folder / name).unlink()
        (folder / name).write_bytes(content)
    kept = {key: manifest[key] for key in ("kind", "depends_on", "fingerprint") if key in manifest}
    draft = folder.rename(folder.with_name(f"{folder.name}-draft"))
    publish_directory(draft, folder, {**kept, **changes})


def test_independent_models_are_refused(bundles: list[Path], tmp_path: Path) -> None:
    other = publish_bundle(tmp_path / "b", tiny(), 2)
    assert open_bundle(other).text_hashes() == open_bundle(bundles[0]).text_hashes()
    assert_refused([*bundles, other], tmp_path, f"{other} .*initial weights.* ensemble")


@pytest.mark.parametrize("repetition", ["link", "copy"])
def test_repeated_model_is_refused(bundles: list[Path], tmp_path: Path, repetition: str) -> None:
    twice = tmp_path / repetition
    if repetition == "link":
        twice.symlink_to(bundles[1])
    else:
        shutil.copytree(bundles[1], twice)
    assert_refused([*bundles, twice], tmp_path, "twice")


def test_invalid_folders_are_refused(bundles: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="already exists"):
        mean_of(bundles, tmp_path)
    altered = tmp_path / "altered"
    shutil.copytree(bundles[1], altered)
    flip_byte(altered / WEIGHTS)
    assert_refused([bundles[0], altered], tmp_path, "was altered")


# Checkpoints


def trained(pipeline: Pipeline, **training: Any) -> Pipeline:
    """A pipeline that is trained for two steps, with two checkpoints."""
    values = {"max_steps": 2, "checkpoint_every_steps": 1, "keep_checkpoints": 9, **training}
    update = {"training": pipeline.recipe.training.model_copy(update=values)}
    pipeline = Pipeline(pipeline.recipe.model_copy(update=update), pipeline.settings, "test")
    for module in (prepare, train, stage):
        module.run(pipeline)
    return pipeline


def checkpoints_of(pipeline: Pipeline) -> list[Path]:
    return sorted((pipeline.need("train").path / "checkpoints").glob("step-*"))


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return trained(tiny_pipeline(tmp_path_factory.mktemp("chain")))


@pytest.fixture
def copied(pipeline: Pipeline, tmp_path: Path) -> Pipeline:
    """A copy of the pipeline's artifacts in another folder."""
    runs = tmp_path / "runs"
    shutil.copytree(pipeline.settings.runs_dir, runs)
    return Pipeline(pipeline.recipe, dataclasses.replace(pipeline.settings, runs_dir=runs), "test")


def test_mean_of_checkpoints_and_a_bundle(copied: Pipeline, tmp_path: Path) -> None:
    first, second = checkpoints_of(copied)
    bundle = copied.need("average").path
    place = mean_of([first, second], tmp_path / "mean")
    assert_mean(place, [first, second])
    for name in ("codes.bpe", "vocabulary.tsv", "tokenization.json"):
        assert (place / name).read_bytes() == (bundle / name).read_bytes()
    other = sibling_of_checkpoint(bundle, tmp_path / "sibling")
    folders = [first, other, second]
    assert_mean(mean_of(folders, tmp_path / "mixed"), folders)
    link = tmp_path / "link"
    link.symlink_to(first)
    assert_mean(mean_of([second, link], tmp_path / "linked"), [first, second])


@pytest.mark.parametrize(("keep", "steps"), [(2, [4, 5]), (3, [4])])
def test_mean_of_running_training(
    copied: Pipeline, tmp_path: Path, keep: int, steps: list[int]
) -> None:
    """The scheduled checkpoints or, if there are too few, those for resuming."""
    values = {"max_steps": 9, "checkpoint_every_steps": 4, "keep_checkpoints": keep}
    update = {
        "training": copied.recipe.training.model_copy(update=values),
        "averaging": copied.recipe.averaging.model_copy(update={"n_checkpoints": 2}),
    }
    pipeline = Pipeline(copied.recipe.model_copy(update=update), copied.settings, "test")
    train_until_killed(pipeline, 6, save_every_s=0.0)
    with pytest.raises(UserError, match="was stopped at step") as error:
        stage.refuse_unfinished(pipeline)
    typed = shlex.split(str(error.value).split("`")[1])
    place = tmp_path / typed.pop()
    ended = CliRunner().invoke(cli.app, [*typed[1:], str(place)])
    assert ended.exit_code == 0, ended.output
    folder = pipeline.store.draft_place("train", pipeline.fingerprint("train")) / "checkpoints"
    assert_mean(place, [folder / f"step-{step:08d}" for step in steps])


def sibling_of_checkpoint(bundle: Path, place: Path) -> Path:
    """A bundle of the same training whose weights differ from those of all checkpoints."""
    shutil.copytree(bundle, place)
    weights = {name: 1.1 * weight for name, weight in load_file(bundle / WEIGHTS).items()}
    save_file(weights, place.with_suffix(".safetensors"))
    rewrite(place, {WEIGHTS: place.with_suffix(".safetensors").read_bytes()})
    return place


def test_checkpoint_of_another_seed_is_refused(copied: Pipeline, tmp_path: Path) -> None:
    other = trained(Pipeline(copied.recipe, copied.settings, "test"), seed=2)
    assert_refused(
        [checkpoints_of(copied)[1], checkpoints_of(other)[1]], tmp_path, "initial weights"
    )
    assert_refused(
        [copied.need("average").path, other.need("average").path], tmp_path, "initial weights"
    )


def test_mean_of_fine_tunings_and_parent(copied: Pipeline, tmp_path: Path) -> None:
    parent = copied.need("average").path
    children = [
        trained(
            Pipeline(copied.recipe, copied.settings, "test"),
            seed=seed,
            start_from=str(parent),
            learning_rate_scale=seed * 1e-3,
        )
        for seed in (5, 6)
    ]
    folders = [parent, children[0].need("average").path, checkpoints_of(children[1])[-1]]
    assert_mean(mean_of(folders, tmp_path / "mean"), folders)


def test_moved_checkpoints_need_a_bundle(copied: Pipeline, tmp_path: Path) -> None:
    paths = [shutil.copytree(path, tmp_path / path.name[-1]) for path in checkpoints_of(copied)]
    assert_refused(paths, tmp_path, "is not in the folder of its training")
    bundle = sibling_of_checkpoint(copied.need("average").path, tmp_path / "sibling")
    assert_mean(mean_of([bundle, *paths], tmp_path / "mean"), [bundle, *paths])


# The two forms


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ("a b --output mean --set averaging.n_checkpoints=2", "--set"),
        ("a b --output mean --runs-dir other", "--runs-dir"),
        ("a b --output mean --force", "--force"),
        ("a b", "--output"),
    ],
)
def test_options_of_other_form_are_refused(args: str, named: str) -> None:
    ended = CliRunner().invoke(cli.app, ["average", *args.split()])
    assert isinstance(ended.exception, UserError)
    assert named in str(ended.exception)
