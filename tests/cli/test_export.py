"""Exported models work in the other tool, without nmtkit."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Literal, get_args

import ctranslate2
import pytest
import torch
from bundles import LINES, copying_model, publish_bundle
from models import tiny

import nmtkit
from nmtkit.cli.export import export
from nmtkit.config.model import DecodingConfig
from nmtkit.corpus.bpe_learning import learn_bpe
from nmtkit.corpus.bpe_subword import BpeSubword
from nmtkit.corpus.moses import TOKENIZATION, Tokenization, Tokenizations
from nmtkit.corpus.sentencepiece_subword import (
    SentencePiecePair,
    SentencePieceSubword,
    learn_sentencepieces,
)
from nmtkit.corpus.special_tokens import EOS_ID, SPECIALS
from nmtkit.corpus.subword import Subword
from nmtkit.decoding.bundle import DECODING, open_bundle, write_bundle
from nmtkit.decoding.forced import force_ids
from nmtkit.decoding.torch_engine import load_model
from nmtkit.export.exported_model import ExportFormat
from nmtkit.fast.accelerate import accelerate
from nmtkit.model.weights import Description
from nmtkit.store.manifests import MANIFEST, write_manifest
from nmtkit.utils.errors import UserError


def exported(bundle: Path, folder: Path, format_: ExportFormat) -> Path:
    export([str(bundle), str(folder)], format_)
    return folder


def test_ctranslate2_reads_vocabulary(tmp_path: Path) -> None:
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
    for format_ in get_args(ExportFormat):
        folder = exported(place, tmp_path / format_, format_)
        card = (folder / "README.md").read_text(encoding="utf-8")
        assert all(line.isprintable() for line in card.split("\n"))
        assert "\n# y" not in card
        provenance = json.loads(card.split("```json\n")[1].removesuffix("```\n"))
        assert provenance["average"]["depends_on"] == {"name": hostile}


@pytest.mark.parametrize(
    ("formula", "text"),
    [("gnmt", "nmtkit by ((5 + length) / 6) ** alpha"), ("fairseq", "as nmtkit does")],
)
def test_card_has_length_penalty(formula: str, text: str, tmp_path: Path) -> None:
    place = publish_bundle(tmp_path / "b", tiny())
    settings = json.loads((place / DECODING).read_bytes())
    settings["length_penalty_formula"] = formula
    (place / DECODING).write_text(json.dumps(settings), encoding="utf-8")
    write_manifest(place, {"kind": "average"})
    for format_ in get_args(ExportFormat):
        folder = exported(place, tmp_path / format_, format_)
        assert text in (folder / "README.md").read_text(encoding="utf-8")


def bundle_with_piece(folder: Path, piece: str) -> Path:
    """A bundle whose vocabulary has one more piece."""
    bundle = publish_bundle(folder, tiny())
    with (bundle / "vocabulary.tsv").open("a", encoding="utf-8") as file:
        file.write(f"{piece}\t1\n")
    write_manifest(bundle, {"kind": "average"})
    return bundle


@pytest.mark.parametrize("format_", get_args(ExportFormat))
@pytest.mark.parametrize("piece", [*SPECIALS, "<unused 63>"])
def test_piece_like_special_is_refused(piece: str, format_: ExportFormat, tmp_path: Path) -> None:
    bundle = bundle_with_piece(tmp_path / "b", piece)
    with pytest.raises(UserError, match=re.escape(repr(piece))):
        exported(bundle, tmp_path / "exported", format_)
    assert not (tmp_path / "exported").exists()


@pytest.mark.parametrize("piece", ["<blank>", "<mask>", "<S>"])
def test_other_names_are_plain_pieces(piece: str, tmp_path: Path) -> None:
    place = bundle_with_piece(tmp_path / "b", piece)
    translator = ctranslate2.Translator(str(exported(place, tmp_path / "e", "ctranslate2")))
    bundle = open_bundle(place)
    id_ = bundle.text.subword.n_tokens - 1
    assert bundle.text.subword.pieces([id_]) == [piece]
    (theirs,) = translator.score_batch([[piece, "</s>"]], [[piece]])
    model = accelerate(load_model(bundle, torch.device("cpu")))
    (ours,) = force_ids([model], [[id_, EOS_ID]], [[id_]], align=False)
    assert theirs.log_probs == pytest.approx(ours.log_probs, abs=1e-4)


def prepare_text(folder: Path, text: str, *options: str) -> str:
    command = [sys.executable, str(folder / "prepare_text.py"), *options]
    process = subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, check=True)
    return process.stdout.decode()


def test_exported_script_prepares_text(tmp_path: Path) -> None:
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


def bundle_of(
    folder: Path, subword: Subword, tokenizer: Literal["moses", "none"], first_id: int
) -> Path:
    """A bundle that copies short sentences of the subwords from `first_id` on."""
    folder.mkdir()
    sides = {
        side: Tokenization(lang, False, False, tokenizer, False)
        for side, lang in (("src", "en"), ("tgt", "de"))
    }
    subword.save(folder)
    Tokenizations(**sides).save(folder)
    model = copying_model(subword.n_tokens, 6, first_id, n_rows=subword.n_tokens + 3)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    decoding = DecodingConfig(beam_size=3, length_penalty=0.6, max_extra_tokens=4)
    description = Description(config=model.config, n_rows=len(model.output_matrix))
    write_bundle(folder, [], description, decoding, weights)
    write_manifest(folder, {"kind": "average"})
    return folder


LETTERS = Counter({"Hello": 9, "!": 5, "Hell": 2})
PIECES = learn_sentencepieces(LETTERS, 270)
FIRST_PIECE = len(SPECIALS) + 256  # after the bytes
# The vocabulary of an imported model is that of its dictionary.
LISTED = SentencePieceSubword(PIECES, dict.fromkeys(["!", "▁Hello", "▁Hell", "o", "▁!"], 1))
VOCABULARIES: dict[str, tuple[Subword, Literal["moses", "none"], int]] = {
    "bpe": (BpeSubword.from_words(learn_bpe(LETTERS, 4), LETTERS), "moses", len(SPECIALS)),
    "tokens": (SentencePieceSubword(PIECES), "moses", FIRST_PIECE),
    "text": (SentencePieceSubword(PIECES), "none", FIRST_PIECE),
    "fairseq": (LISTED, "none", len(SPECIALS)),
    "marian": (SentencePiecePair(LISTED, LISTED), "none", len(SPECIALS)),
}


@pytest.fixture(scope="module", params=VOCABULARIES)
def copying_bundle(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A bundle for each kind of vocabulary."""
    folder = tmp_path_factory.mktemp("copying") / "bundle"
    return bundle_of(folder, *VOCABULARIES[request.param])


# transformers takes seconds to import.
CARD_FORMATS = [
    pytest.param(name, marks=[pytest.mark.slow] if name == "huggingface" else [])
    for name in get_args(ExportFormat)
]


@pytest.mark.parametrize("format_", CARD_FORMATS)
def test_examples_of_the_card_run(
    format_: ExportFormat, copying_bundle: Path, tmp_path: Path
) -> None:
    if format_ == "huggingface":
        pytest.importorskip("transformers")
    exported(copying_bundle, tmp_path / "it's", format_)
    card = (tmp_path / "it's" / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert len(blocks) == (2 if format_ == "huggingface" else 1)
    # Run the blocks as one program, in the folder that contains the exported one.
    (tmp_path / "example.py").write_text("".join(blocks), encoding="utf-8")
    process = subprocess.run(
        [sys.executable, "example.py"], stdout=subprocess.PIPE, cwd=tmp_path, check=True
    )
    assert process.stdout.decode() == "Hello!\n"
    translator = nmtkit.Translator(copying_bundle, device="cpu", engine="torch")
    (translation,) = translator.translate(["Hello!"])
    assert translation.text == "Hello!"
