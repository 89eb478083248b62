"""SGML in several files: segments are paired by the ids of documents and segments, like mteval."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from texts import rows_of, write_file

from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.kinds import read_plain
from nmtkit.utils.errors import UserError

DOCUMENTS = ["a", "b", "c"]


def sgml(documents: Sequence[str], lang: str, segments: Sequence[int] = (1, 2)) -> str:
    text = f'<refset setid="x" trglang="{lang}">\n'
    for document in documents:
        text += f'<DOC sysid="ref" docid="{document}" genre="news">\n<p>\n'
        for number in segments:
            text += f'<seg id="{number}">{document} {number} {lang}</seg>\n'
        text += "</p>\n</DOC>\n"
    return text + "</refset>\n"


def write(folder: Path, src: str, *tgts: str) -> FilePair:
    write_file(folder / "src.en.sgm", src)
    paths = [str(write_file(folder / f"ref{i}.de.sgm", tgt)) for i, tgt in enumerate(tgts)]
    return FilePair(src=str(folder / "src.en.sgm"), tgt=tuple(paths))


NAMES = ["a 1", "a 2", "b 1", "b 2", "c 1", "c 2"]
EXPECTED = [(f"{name} en", f"{name} de", f"{name} at") for name in NAMES]


def test_order_of_documents_and_segments(tmp_path: Path) -> None:
    references = sgml(DOCUMENTS[::-1], "de"), sgml(DOCUMENTS, "at", (2, 1))
    assert rows_of(write(tmp_path, sgml(DOCUMENTS, "en"), *references)) == EXPECTED


def test_quotes_of_attributes_are_optional(tmp_path: Path) -> None:
    reference = sgml(DOCUMENTS[::-1], "de").replace('"', "")
    rows = rows_of(write(tmp_path, sgml(DOCUMENTS, "en"), reference))
    assert rows == [row[:2] for row in EXPECTED]


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        (sgml(["c", "b"], "de"), r"ref0.* lacks 2 segments of .*src.*'1' of document 'a'"),
        (sgml(["c", "b", "a", "d"], "de"), r"src.* lacks 2 segments of .*ref0.*document 'd'"),
        (sgml(["c", "b", "a", "a"], "de"), r"ref0.* has segment '1' of document 'a' twice"),
        (sgml(DOCUMENTS, "de", (1,)), "lacks 3 segments"),
        (sgml(DOCUMENTS, "de").replace("docid", "name"), "ref0.* lacks some"),
        (sgml(DOCUMENTS, "de").replace("seg id", "seg name"), "ref0.* lacks some"),
    ],
)
def test_segments_that_do_not_match(tmp_path: Path, reference: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        rows_of(write(tmp_path, sgml(DOCUMENTS, "en"), reference))


def test_position_without_ids(tmp_path: Path) -> None:
    bare = [sgml(DOCUMENTS, lang).replace(" docid", " x").replace(" id", " y") for lang in "ed"]
    assert rows_of(write(tmp_path, *bare))[3] == ("b 2 e", "b 2 d")
    with pytest.raises(UserError, match="differ in length"):
        rows_of(write(tmp_path, bare[0], bare[1].replace('<seg y="2">b 2 d</seg>', "")))


def test_position_of_plain_text(tmp_path: Path) -> None:
    write_file(tmp_path / "src.sgm", sgml(DOCUMENTS[::-1], "en"))
    lines = [f"line {i}" for i in range(6)]
    write_file(tmp_path / "plain.de", "".join(f"{line}\n" for line in lines))
    rows = rows_of(FilePair(src=str(tmp_path / "src.sgm"), tgt=str(tmp_path / "plain.de")))
    assert [tgt for _, tgt in rows] == lines
    assert rows[0][0] == "c 1 en"


def test_one_file_in_the_order_of_another(tmp_path: Path) -> None:
    reference = write_file(tmp_path / "ref.sgm", sgml(DOCUMENTS, "de"))
    system = write_file(tmp_path / "hyp.sgm", sgml(DOCUMENTS[::-1], "hyp"))
    lines = list(read_plain(system, in_order_of=reference))
    assert lines == [f"{name} hyp" for name in NAMES]


def test_plain_reads_the_tags(tmp_path: Path) -> None:
    pair = write(tmp_path, sgml(["a"], "en"), sgml(["b"], "de"))
    rows = rows_of(pair.model_copy(update={"plain": True}))
    assert rows[0] == ('<refset setid="x" trglang="en">', '<refset setid="x" trglang="de">')
