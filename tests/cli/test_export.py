"""An exported model works in the other tool alone."""

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import ctranslate2
import pytest
import torch
from bundles import LINES, publish_bundle
from models import tiny

from nmtkit.cli.export import ExportFormat, export
from nmtkit.corpus.moses import TOKENIZATION
from nmtkit.decoding.bundle import open_bundle
from nmtkit.decoding.forced import force_ids
from nmtkit.decoding.torch_engine import load_model
from nmtkit.fast.accelerate import accelerate
from nmtkit.store import MANIFEST, write_manifest


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
    assert (folder / "codes.bpe").read_bytes() == (place / "codes.bpe").read_bytes()


def test_card_escapes_names_of_languages(tmp_path: Path) -> None:
    place = publish_bundle(tmp_path / "b", tiny())
    hostile = "xx\u202e\x9b](x)\n# y"
    sides = json.loads((place / TOKENIZATION).read_bytes())
    sides["src"]["lang"] = sides["tgt"]["lang"] = hostile
    (place / TOKENIZATION).write_text(json.dumps(sides), encoding="utf-8")
    (place / MANIFEST).unlink()
    write_manifest(place, {"kind": "average", "depends_on": {"name": hostile}})
    for how in get_args(ExportFormat):
        folder = exported(place, tmp_path / how, how)
        card = (folder / "README.md").read_text(encoding="utf-8")
        assert all(line.isprintable() for line in card.split("\n"))
        assert "\n# y" not in card
        provenance = json.loads(card.split("```json\n")[1].removesuffix("```\n"))
        assert provenance["average"]["depends_on"] == {"name": hostile}


def prepare_text(folder: Path, text: str, *options: str) -> str:
    command = [sys.executable, str(folder / "prepare_text.py"), *options]
    done = subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()


def test_text_goes_into_the_folder_by_the_script_in_it(tmp_path: Path) -> None:
    bundle = publish_bundle(tmp_path / "b", tiny())
    folder = exported(bundle, tmp_path / "exported", "huggingface")
    ids = json.loads((folder / "tokenizer.json").read_bytes())["model"]["vocab"]
    first = (folder / "README.md").read_text(encoding="utf-8").split("---\n")[2].split("\n")[0]
    assert "prepare_text.py" in first
    prepared = prepare_text(folder, "".join(f"{line}\n" for line in LINES))
    text = open_bundle(bundle).text
    for line, subwords in zip(LINES, prepared.removesuffix("\n").split("\n"), strict=True):
        assert [ids[subword] for subword in subwords.split(" ")] == text.encode(line)[:-1]
    assert prepare_text(folder, prepared, "--back").removesuffix("\n").split("\n") == LINES
