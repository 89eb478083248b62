"""The script of a model for CTranslate2: it translates where nmtkit is not installed."""

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import ctranslate2
import sentencepiece
from bundles import LINES, peaked_model
from models import tiny

from nmtkit.config.model import DecodingConfig
from nmtkit.corpus.moses import Tokenization, Tokenizations
from nmtkit.corpus.sentencepiece_subword import SentencePieceSubword, learn_sentencepieces
from nmtkit.decoding.bundle import open_bundle, write_bundle
from nmtkit.export.exported_model import export_bundle
from nmtkit.model.weights import Description
from nmtkit.store.artifacts import publish_directory

N_TOKENS = 300
# Libraries of a server that only translates.
WITHOUT_NMTKIT = """
import runpy, sys
sys.modules["nmtkit"] = sys.modules["torch"] = None
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def publish(folder: Path) -> Path:
    """Publish the bundle of a model of plain sentencepieces."""
    texts = folder / "texts"
    texts.mkdir()
    subword = SentencePieceSubword(learn_sentencepieces(Counter(" ".join(LINES).split()), N_TOKENS))
    subword.save(texts)
    src, tgt = (Tokenization(lang, False, False, "none", False) for lang in ("en", "de"))
    Tokenizations(src=src, tgt=tgt).save(texts)
    draft = folder / "draft"
    draft.mkdir()
    config = tiny(d_model=8, n_heads=2, d_k=4, d_v=4)
    model = peaked_model(config, N_TOKENS, seed=4)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    # The length penalty that CTranslate2 has by default.
    decoding = DecodingConfig(
        beam_size=1, length_penalty=1.0, length_penalty_formula="fairseq", max_extra_tokens=200
    )
    description = Description(config=config, n_rows=N_TOKENS)
    write_bundle(draft, sorted(texts.iterdir()), description, decoding, weights)
    publish_directory(draft, folder / "bundle", {"kind": "average"})
    return folder / "bundle"


def test_script_needs_no_nmtkit(tmp_path: Path) -> None:
    bundle = publish(tmp_path)
    exported = tmp_path / "exported"
    export_bundle(bundle, exported, "ctranslate2", None)
    # Sources are the pieces that nmtkit reads. The search differs, as the card explains.
    text = open_bundle(bundle).text
    pieces = sentencepiece.SentencePieceProcessor(str(bundle / "sentencepiece.model"))
    model = ctranslate2.Translator(str(exported))
    lines = [LINES[0], " ", *LINES[1:]]
    expected = []
    for line in lines:
        source = text.subword.pieces(text.encode(line))
        result = model.translate_batch([source], beam_size=1)[0] if source else None
        expected.append(pieces.decode(result.hypotheses[0]) if result else "")
    shutil.rmtree(bundle)
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_NMTKIT, str(exported / "translate.py")],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert ran.stdout.split("\n") == [*expected, ""]
    assert expected[1] == ""
    assert len(set(expected)) > 2
