"""The stage `score`: all references of a test set are used, as in sacreBLEU."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from chains import tiny_pipeline

from nmtkit.evaluation.translations import read_scores, translated_sets, write_set
from nmtkit.stages import score
from nmtkit.stages.pipeline import Pipeline

SRC = [str(number) for number in range(6)]
HYPS = ["Die Katze saß auf der roten Matte.", "Ein Hund kam heim.", "Nein &amp; ja!",
        "Es regnet heute in Köln.", "", "Zwei Lichtjahre entfernt."]  # fmt: skip
REFERENCES = [
    ["Die Katze saß auf einer roten Matte.", "Ein Hund kam.", "Nein & ja", "Heute regnet es.", "a",
     "Zwei Lichtjahre weit entfernt."],
    ["Eine Katze saß auf der roten Matte.", "Der Hund kam heim.", "Nein!", "Es regnet in Köln.",
     "b", "Es ist zwei Lichtjahre entfernt."],
    ["", "Ein Hund kam heim.", "Doch", "In Köln regnet es heute.", "c", "Lichtjahre entfernt"],
]  # fmt: skip


def translated(folder: Path, n_references: int) -> Pipeline:
    """Publish a translated test set. The artifacts that it needs are empty."""
    pipeline = tiny_pipeline(folder)
    for stage in ("prepare", "train", "average"):
        pipeline.build(stage, lambda _: {})

    def write(draft: Path) -> dict[str, Any]:
        write_set(draft, "test", SRC, HYPS, REFERENCES[:n_references], [{} for _ in SRC])
        return {}

    pipeline.build("translate", write)
    return pipeline


def text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.mark.parametrize(
    "names", [[], ["reference.txt"], ["reference.1.txt", "reference.2.txt", "reference.3.txt"]]
)
def test_references_are_written_and_read(names: list[str], tmp_path: Path) -> None:
    references = REFERENCES[: len(names)]
    (found,) = translated_sets(translated(tmp_path, len(names)).need("translate"))
    assert found.read() == (SRC, HYPS, references)
    assert [path.name for path in found.references] == names
    assert [path.read_bytes() for path in found.references] == list(map(text, references))


@pytest.mark.parametrize("n_references", [1, 3])
def test_all_references_are_scored(n_references: int, tmp_path: Path) -> None:
    found = read_scores(score.run(translated(tmp_path, n_references)))["test"]
    expected = sacrebleu.corpus_bleu(HYPS, REFERENCES[:n_references])
    assert found["sacrebleu"]["score"] == expected.score
    assert f"nrefs:{n_references}|" in found["sacrebleu"]["signature"]
    read = b"".join(map(text, REFERENCES[:n_references]))
    assert found["test_set"]["sha256"] == hashlib.sha256(read).hexdigest()


def test_escaped_text_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact = score.run(translated(tmp_path, 1))
    printed = capsys.readouterr()
    assert printed.err.count("&amp;") == 1
    assert "&amp;" not in printed.out
    assert "sacrebleu" in read_scores(artifact)["test"]
