"""The script of a model for CTranslate2: it translates where nmtkit is not installed."""

import subprocess
import sys
from collections import Counter
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from bundles import LINES, copying_model

from nmtkit import Translator
from nmtkit.config.model import DecodingConfig
from nmtkit.corpus.moses import Tokenization, Tokenizations
from nmtkit.corpus.sentencepiece_subword import SentencePieceSubword, learn_sentencepieces
from nmtkit.corpus.special_tokens import UNK_ID
from nmtkit.corpus.vocabulary_map import VOCABULARY_MAP, VocabularyMap
from nmtkit.decoding.bundle import write_bundle
from nmtkit.export.exported_model import export_bundle
from nmtkit.model.transformer import Transformer
from nmtkit.model.weights import Description
from nmtkit.store.artifacts import publish_directory

N_TOKENS = 300
# Libraries of a server that only translates.
WITHOUT_NMTKIT = """
import runpy, sys
sys.modules["nmtkit"] = sys.modules["torch"] = None
runpy.run_path(sys.argv[1], run_name="__main__")
"""
UNUSUAL = [
    "",
    " \t ",
    "\u200b\ufeff",  # invisible
    "A dog looked.\r",
    "A\u2028dog\x0blooked\x85.",  # line breaks of other programs
    "\x00\x07\x1b[31m",
    "\U0001f642 \u65e5\u672c\u8a9e",  # not in the training text
    "<unk> <s> </s> <pad> <unused 300>",
    "A dog looked, and then it ran away. " * 20,  # more subwords than the model can read
    "cat" * 2_000,  # longer than MAX_CHARACTERS
]
GNMT = DecodingConfig(beam_size=4, length_penalty=0.6, max_extra_tokens=9)


@pytest.fixture(scope="module")
def subword() -> SentencePieceSubword:
    return SentencePieceSubword(learn_sentencepieces(Counter(" ".join(LINES).split()), N_TOKENS))


@pytest.fixture
def model(trained: Transformer) -> Transformer:
    """A model of its own for each test."""
    return deepcopy(trained)


@pytest.fixture(scope="module")
def trained() -> Transformer:
    """A model that has learned to copy, not well."""
    return copying_model(N_TOKENS, longest=9, n_rows=N_TOKENS + 4)


def export_script(
    folder: Path,
    model: Transformer,
    subword: SentencePieceSubword,
    decoding: DecodingConfig = GNMT,
    tgt_lang: str = "de",
    vocabulary_map: VocabularyMap | None = None,
) -> tuple[Path, Translator]:
    """Export a model of plain sentencepieces; return the folder, and nmtkit's translator."""
    texts = folder / "texts"
    texts.mkdir()
    subword.save(texts)
    src, tgt = (Tokenization(lang, False, False, "none", False) for lang in ("en", tgt_lang))
    Tokenizations(src=src, tgt=tgt).save(texts)
    draft = folder / "draft"
    draft.mkdir()
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    description = Description(config=model.config, n_rows=len(model.output_matrix))
    write_bundle(draft, sorted(texts.iterdir()), description, decoding, weights)
    if vocabulary_map is not None:
        names = [str(id_) for id_ in range(N_TOKENS)]
        vocabulary_map.write(draft / VOCABULARY_MAP, names)
    bundle = folder / "bundle"
    publish_directory(draft, bundle, {"kind": "average"})
    export_bundle(bundle, folder / "exported", "ctranslate2", None)
    translator = Translator(bundle, device="cpu", engine="ctranslate2", split_sentences=False)
    return folder / "exported", translator


def run_script(exported: Path, lines: list[str]) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_NMTKIT, str(exported / "translate.py")],
        input="".join(f"{line}\n" for line in lines).encode(),
        capture_output=True,
        check=True,
    )
    return ran.stdout.decode().removesuffix("\n").split("\n")


@pytest.mark.parametrize(
    ("changes", "tgt_lang"),
    [
        ({}, "de"),
        ({"beam_size": 1}, "ja"),  # without spaces between sentences
        ({"beam_size": 3, "length_penalty": 2.0, "max_length": 5}, "de"),
        ({"length_penalty_formula": "fairseq"}, "de"),
    ],
    ids=str,
)
def test_script_translates_as_nmtkit(
    changes: dict[str, object],
    tgt_lang: str,
    model: Transformer,
    subword: SentencePieceSubword,
    tmp_path: Path,
) -> None:
    decoding = GNMT.model_copy(update=changes)
    exported, translator = export_script(tmp_path, model, subword, decoding, tgt_lang)
    lines = [*LINES, *UNUSUAL]
    expected = [translation.text for translation in translator.translate(lines)]
    assert run_script(exported, lines) == expected
    assert expected[len(LINES) : len(LINES) + 3] == ["", "", ""]
    assert len(set(expected)) > 8


def test_script_never_writes_unk(
    model: Transformer, subword: SentencePieceSubword, tmp_path: Path
) -> None:
    # Where the model would end a line with a full stop, <unk> is more probable.
    full_stop = subword.encode("sat.")[-1]
    with torch.no_grad():
        model.output_matrix[UNK_ID] = 1.5 * model.output_matrix[full_stop]
    exported, translator = export_script(tmp_path, model, subword)
    lines = [line.replace("!", ".") for line in LINES]
    expected = [translation.text for translation in translator.translate(lines)]
    translations = run_script(exported, lines)
    assert translations == expected
    assert "." in "".join(translations)
    assert "\u2047" not in "".join(translations)  # <unk> as sentencepiece writes it


def test_script_uses_vocabulary_map(
    model: Transformer, subword: SentencePieceSubword, tmp_path: Path
) -> None:
    candidates = [*subword.encode("dog"), *subword.encode("cat")]
    found = VocabularyMap(frequent=candidates, candidates={})
    exported, translator = export_script(tmp_path, model, subword, vocabulary_map=found)
    lines = [*LINES, *UNUSUAL]
    expected = [translation.text for translation in translator.translate(lines)]
    assert run_script(exported, lines) == expected
    assert set("".join(expected)) == set("dogcat ")
