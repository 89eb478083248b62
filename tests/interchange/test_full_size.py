"""A model of the size of fairseq's published ones is imported and translates.

Its weights are random. tests/system/test_fairseq_models.py downloads the published ones.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import fairseq_models
import pytest
from fairseq_models import EOS, LANGS, FairseqModel, save_checkpoint, write_dictionaries

from nmtkit.store.records import write_lines

# transformer_vaswani_wmt_en_de_big, with the dictionary of transformer.wmt14.en-fr
SIZES = {"D_MODEL": 1_024, "N_HEADS": 16, "D_FF": 4_096, "N_LAYERS": 6}
N_ROWS = 44_512
WORDS = ("the", "cat", "eine", "Katze")
MAX_GIB = 4.0  # of the import; the weights take 1.2, and those of the checkpoint 0.8


def run(*arguments: str) -> tuple[str, float]:
    """Run a command and return its output and its seconds."""
    begin = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "nmtkit", *arguments], stdout=subprocess.PIPE, check=True
    )
    return ended.stdout.decode("utf-8"), time.monotonic() - begin


def write_model(folder: Path) -> list[float]:
    """Write a model of full size, and return its log-probabilities of "eine Katze"."""
    codes = ["#version: 0.2"]
    for word in WORDS:
        for end in range(1, len(word) - 1):
            codes.append(f"{word[:end]} {word[end]}")
        codes.append(f"{word[:-1]} {word[-1]}</w>")
    write_lines(folder / "codes.bpe", codes)
    others = [chr(0x20000 + number) for number in range(N_ROWS - 4 - len(WORDS))]
    assert write_dictionaries(folder, [*WORDS, *others]) == N_ROWS
    model = FairseqModel(N_ROWS)
    # Wide random layers saturate; smaller ones give log-probabilities like those of a real model.
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(0.3)
    model.embeddings[0].data.mul_(0.1)
    settings = model.settings(encoder_attention_heads=16, decoder_attention_heads=16)
    save_checkpoint(folder / "model.pt", model.state(), settings)
    ids = {word: 4 + number for number, word in enumerate(WORDS)}
    src = [ids["the"], ids["cat"], EOS]
    tgt = [ids["eine"], ids["Katze"], EOS]
    log_probs: list[float] = model.log_probs(src, tgt).tolist()
    return log_probs


@pytest.mark.slow
def test_full_size_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in SIZES.items():
        monkeypatch.setattr(fairseq_models, name, value)
    expected = write_model(tmp_path)
    checkpoint = str(tmp_path / "model.pt")
    bundle = str(tmp_path / "bundle")
    codes = str(tmp_path / "codes.bpe")
    _, import_s = run("import", checkpoint, bundle, "--codes", codes, "--lang", "-".join(LANGS))
    peak_gib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    assert peak_gib < MAX_GIB

    write_lines(tmp_path / "text.en", ["the cat"])
    write_lines(tmp_path / "text.de", ["eine Katze"])
    texts = [str(tmp_path / f"text.{lang}") for lang in LANGS]
    forced, force_s = run("force", "--bundle", bundle, *texts, "--format", "json")
    (translation,) = json.loads(forced)["translations"]
    assert translation["token_log_probs"] == pytest.approx(expected, abs=1e-3)

    source = str(tmp_path / "text.en")
    translated, translate_s = run(
        "translate", "--bundle", bundle, "-i", source, "--engine", "torch"
    )
    assert translated.count("\n") == 1
    with capsys.disabled():
        print(
            f"\nimport: {import_s:.0f} s, {peak_gib:.1f} GiB; force: {force_s:.0f} s; translate: "
            f"{translate_s:.0f} s"
        )
