"""fairseq's published big models have their published scores: pipelines/results/fairseq-models.md.

This takes hours on a CPU, and 15 GB of disk.
"""

import json
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlretrieve

import pytest

from nmtkit.corpus.moses import Tokenization
from nmtkit.evaluation.bleu import compound_split, multi_bleu

pytestmark = pytest.mark.network

MODELS = "https://dl.fbaipublicfiles.com/fairseq/models"
TEST_SET = "wmt14/full"
# fairseq stops its search earlier, and rounds in other places.
TOLERANCE = 0.15


@dataclass(frozen=True)
class Published:
    """A model and its published scores on newstest2014."""

    name: str
    pair: str
    sacrebleu: float
    token_bleu: float  # with compounds split at hyphens

    @property
    def tgt_lang(self) -> str:
        return self.pair.split("-")[1]


EN_DE = Published("wmt16.en-de", "en-de", sacrebleu=28.6, token_bleu=29.29)
EN_FR = Published("wmt14.en-fr", "en-fr", sacrebleu=41.4, token_bleu=43.2)


def run(folder: Path, *command: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, stdout=subprocess.PIPE, check=True
    )
    return ended.stdout.decode("utf-8")


def import_model(folder: Path, model: Published) -> None:
    """Download a model, import it as the bundle "bundle", and write the source text."""
    name = f"{model.name}.joined-dict.transformer"
    urlretrieve(f"{MODELS}/{name}.tar.bz2", folder / "model.tar.bz2")
    with tarfile.open(folder / "model.tar.bz2") as archive:
        archive.extractall(folder, filter="data")
    codes = f"{name}/bpecodes"
    command = ["import", f"{name}/model.pt", "bundle", "--codes", codes, "--lang", model.pair]
    run(folder, "nmtkit", *command)
    source = run(folder, "sacrebleu", "-t", TEST_SET, "-l", model.pair, "--echo", "src")
    (folder / "src").write_text(source, encoding="utf-8", newline="\n")


def translate(folder: Path, beam: int, alpha: float, form: str) -> str:
    command = ["translate", "--bundle", "bundle", "-i", "src", "-o", form, "--no-split"]
    command += ["--format", form, "--beam", str(beam), "--length-penalty", str(alpha)]
    run(folder, "nmtkit", *command, "--penalty-formula", "fairseq")
    return (folder / form).read_text(encoding="utf-8")


def hypothesis_tokens(output: str) -> list[str]:
    """Return the tokens of the H lines of fairseq-generate."""
    lines = []
    for line in output.split("\n"):
        if line.startswith("H-"):
            subwords = line.split("\t")[2]
            lines.append(f"{subwords} ".replace("@@ ", "").rstrip(" "))
    return lines


def reference_tokens(folder: Path, model: Published) -> list[str]:
    text = run(folder, "sacrebleu", "-t", TEST_SET, "-l", model.pair, "--echo", "ref")
    # The tokens of the English-French model have hyphens of their own (tokenizer.perl -a).
    hyphens = model is EN_FR
    tokenization = Tokenization(model.tgt_lang, False, False, "moses", hyphens)
    return [tokenization.tokenize(line) for line in text.removesuffix("\n").split("\n")]


@pytest.mark.parametrize("model", [EN_DE, EN_FR], ids=lambda model: model.pair)
def test_published_scores(model: Published, tmp_path: Path) -> None:
    import_model(tmp_path, model)
    hyps = hypothesis_tokens(translate(tmp_path, 4, 0.6, "fairseq"))
    refs = reference_tokens(tmp_path, model)
    if model is EN_DE:
        hyps = [compound_split(line) for line in hyps]
        refs = [compound_split(line) for line in refs]
    assert multi_bleu(hyps, refs)["score"] == pytest.approx(model.token_bleu, abs=TOLERANCE)

    translate(tmp_path, 4, 0.6, "text")
    command = ["score", "text", "--test-set", TEST_SET, "--lang", model.pair, "--json"]
    scores = json.loads(run(tmp_path, "nmtkit", *command))
    assert scores["text"]["sacrebleu"]["score"] == pytest.approx(model.sacrebleu, abs=TOLERANCE)


def test_published_bleu_of_tokens(tmp_path: Path) -> None:
    import_model(tmp_path, EN_DE)
    hyps = hypothesis_tokens(translate(tmp_path, 5, 1.0, "fairseq"))
    bleu = multi_bleu(hyps, reference_tokens(tmp_path, EN_DE))
    assert bleu["ref_len"] == 63_078
    assert bleu["score"] == pytest.approx(29.23, abs=TOLERANCE)
    assert bleu["precisions"] == pytest.approx([60.5, 35.0, 22.7, 15.2], abs=2 * TOLERANCE)
