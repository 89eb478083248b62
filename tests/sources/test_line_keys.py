"""Keys at the start of line n of a text and of its translation."""

from pathlib import Path

import pytest
from texts import rows_of

from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.text_formats import find_keys
from nmtkit.utils.errors import UserError

KEYED = {
    "PHP": "  'menu.item_{}' => '{}',",
    "numbers": "{}. {}",
    "tabs": "{}\t{}",
    "times": "[00:10:{}] {}",
    "names": "ANNA: {1} {0}",
    "ids": "doc-{} {}",
    "bars": "line{}|{}",
    "JSON": '"k{}": "{}",',
}


def written_pair(folder: Path, line: str, end: str = "") -> FilePair:
    paths = []
    for lang, text in (("en", "the house"), ("de", "das Haus")):
        lines = [line.format(i, f"{text} {i}") for i in range(10, 40)]
        paths.append(folder / f"a.{lang}")
        paths[-1].write_text("\n".join(lines) + "\n" + end, encoding="utf-8", newline="")
    return FilePair(src=str(paths[0]), tgt=str(paths[1]))


@pytest.mark.parametrize("form", KEYED)
def test_keyed_lines_are_refused(form: str, tmp_path: Path) -> None:
    source = written_pair(tmp_path, KEYED[form])
    with pytest.raises(UserError, match=r"a\.en .*(same key|keys and values|YAML)"):
        rows_of(source)
    assert len(rows_of(source.model_copy(update={"plain": True}))) == 30


def test_common_first_words_are_text() -> None:
    sentences = [(f"{i} men walk", f"{i} Männer gehen") for i in range(20)]
    others = [("A dog runs: fast", "Ein Hund rennt: schnell")] * 20
    assert find_keys(sentences + others) is None
    assert find_keys(sentences[:4]) is None
    assert find_keys(sentences[:5]) is not None
    # Lines that are not translated, and words without a key.
    assert find_keys([(f"{i}. x", f"{i}. x") for i in range(20)]) is None
    assert find_keys([(f"Berlin is {i}", f"Berlin ist {i}") for i in range(20)]) is None


@pytest.mark.parametrize("end", ["\x1a", "\x1a\r\n", "\x1a\n\x00\n"])
def test_control_characters_at_the_end_are_counted(
    end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = written_pair(tmp_path, "{1}", end)
    (tmp_path / "a.de").write_text(
        (tmp_path / "a.de").read_text(encoding="utf-8").rstrip("\x1a\x00\r\n") + "\n",
        encoding="utf-8",
    )
    assert len(rows_of(source)) == 30
    assert "control characters" in capsys.readouterr().err


def test_lines_of_tags_are_refused(tmp_path: Path) -> None:
    source = written_pair(tmp_path, "{1}")
    for path in (tmp_path / "a.en", tmp_path / "a.de"):
        text = path.read_text(encoding="utf-8")
        path.write_text(f"<url>http://x</url>\n<reviewer></reviewer>\n{text}", encoding="utf-8")
    with pytest.raises(UserError, match="grep -vE"):
        rows_of(source)
