"""A bundle in the format of another library, with a card that records its origin."""

import shutil
from pathlib import Path

import torch

from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.decoding.bundle import open_bundle
from nmtkit.decoding.lines import MAX_SUBWORDS
from nmtkit.decoding.torch_engine import load_model
from nmtkit.interchange.export import LIBRARIES, ExportFormat, write_exported_model
from nmtkit.reporting.model_card import Origin, OriginArtifact, write_card
from nmtkit.stages.pipeline import warn_of_other_code
from nmtkit.store.artifacts import Artifact, Store, open_directory
from nmtkit.store.files import whole_folder
from nmtkit.store.manifests import MANIFEST
from nmtkit.store.run_records import (
    read_run_record,
    surrounding_runs_dir,
    with_sources,
    without_damaged,
)
from nmtkit.utils.errors import UserError


def export_bundle(path: Path, folder: Path, format_: ExportFormat, repository: str | None) -> None:
    """Write a new folder with the model of a bundle, its text processing and a model card.

    Args:
        path: The bundle.
        folder: The new folder.
        format_: The format of the model.
        repository: The repository of the Hugging Face hub that the folder will be uploaded to.

    Raises:
        UserError: The folder exists, or the format cannot represent the bundle.
    """
    with whole_folder(folder) as draft:
        bundle = open_bundle(path)
        warn_of_other_code([bundle.artifact])
        if bundle.text.tgt.has_trees:
            raise UserError(
                f"{path} is a parser, and only nmtkit can build trees from its output; use "
                "`nmtkit translate --bundle`"
            )
        write_exported_model(
            draft,
            format_,
            load_model(bundle, torch.device("cpu")),
            bundle.text.subword,
            bundle.decoding,
            bundle.max_subwords,
            n_positions=2 * MAX_SUBWORDS,
            langs=(bundle.text.src.lang, bundle.text.tgt.lang),
        )
        origin = bundle_origin(bundle.artifact.path.resolve())
        write_card(draft, bundle, LIBRARIES[format_], origin, folder.name, repository)
        # Other tools need the subword model and the tokenization to encode raw text.
        for file in PreparedCorpus(bundle.artifact).bundle_files():
            shutil.copyfile(file, draft / file.name)


def bundle_origin(path: Path) -> Origin:
    """Find the artifacts that a bundle was built from, and its scores, in its folder of runs.

    Args:
        path: The absolute path of the bundle.
    """
    runs_dir = surrounding_runs_dir(path)
    artifacts = []
    for source in with_sources(path, runs_dir):
        # A bundle that was copied elsewhere has no sources there.
        with without_damaged(source / MANIFEST):
            artifacts.append(OriginArtifact(open_directory(source), read_run_record(source).run))
    scores: list[Artifact] = []
    for folder in Store(runs_dir).folders("score"):
        is_published = not folder.suffix
        if is_published and path in with_sources(folder, runs_dir):
            scores.append(open_directory(folder))
    return Origin(artifacts, scores)
