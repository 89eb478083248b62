"""An exported model works in the other tool alone."""

import json
from pathlib import Path

import ctranslate2
import pytest
import torch
from bundles import LINES, publish_bundle
from models import tiny

from nmtkit.cli.export import ExportFormat, export
from nmtkit.decoding.bundle import open_bundle
from nmtkit.decoding.forced import force_ids
from nmtkit.decoding.torch_engine import load_model
from nmtkit.fast.accelerate import accelerate


def exported(bundle: Path, folder: Path, how: ExportFormat) -> Path:
    export(bundle=bundle, folder=folder, how=how)
    return folder


def test_ctranslate2_reads_the_pieces_of_the_vocabulary(tmp_path: Path) -> None:
    place = publish_bundle(tmp_path / "b", tiny())
    folder = exported(place, tmp_path / "exported", "ctranslate2")
    bundle = open_bundle(place)
    source, target = (bundle.text.encode(line) for line in LINES[:2])
    pieces = bundle.text.subword.pieces
    translator = ctranslate2.Translator(str(folder), compute_type="float32")
    (theirs,) = translator.score_batch([pieces(source)], [pieces(target[:-1])])
    model = accelerate(load_model(bundle, torch.device("cpu")))
    (ours,) = force_ids([model], [source], [target[:-1]], align=False)
    assert theirs.log_probs == pytest.approx(ours.log_probs, abs=1e-4)
    assert "aggressive_hyphens = False" in (folder / "README.md").read_text(encoding="utf-8")
    assert (folder / "codes.bpe").read_bytes() == (place / "codes.bpe").read_bytes()


def test_hugging_face_gets_weights_and_settings(tmp_path: Path) -> None:
    place = publish_bundle(tmp_path / "b", tiny())
    folder = exported(place, tmp_path / "exported", "huggingface")
    generation = json.loads((folder / "generation_config.json").read_bytes())
    assert (generation["num_beams"], generation["length_penalty"]) == (3, 0.6)
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "vocabulary.tsv", "tokenization.json"} < names
