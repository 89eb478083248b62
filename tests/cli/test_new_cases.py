"""`nmtkit new` with small files that went wrong once; they are not part of the project."""

import re
import shlex
from pathlib import Path

import pytest
from texts import rows_of
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.cli import new as command
from nmtkit.config.loading import load_recipe
from nmtkit.sources.source import Source

# How the first sentence and its translation begin in the two texts that the files contain.
NEWS = ("A Republican", "Eine republikanische", 150)
ANNA = ("Anna sees", "Anna sieht", 120)

# Refused, with a command that reads the right pairs.
ASKED = [
    ("--tsv columns/t1.tsv --src-lang en --tgt-lang id", "ID, Indonesian", NEWS),
    ("--jsonl columns/v1.jsonl --src-lang en --tgt-lang id", "id, Indonesian", NEWS),
    ("--tsv columns/n1.tsv:id,en,yue", "id, en, yue", NEWS),
    ("--csv columns/k2.csv --tgt-lang fr", r"French \(Canada\), French \(France\)", NEWS),
    ("--jsonl columns/u3.jsonl", r"title\.en.*text\.de", NEWS),
    ("--jsonl columns/j9.jsonl:source,target", "source, target", NEWS),
    ("--tsv forms/q.tsv", "--src-lang", NEWS),
    ("--csv forms/o1.csv", "--src-lang", ("Well, yes", "Nun, ja", 151)),
    ("--csv names/key.csv", "Key, Text, German", ANNA),
    ("--csv names/key_us.csv", "Key, English", ANNA),
    ("--jsonl names/id.jsonl", "id, en, translation", ANNA),
    ("--jsonl names/doc_seg.jsonl", "doc_id, seg_id", ANNA),
    ("--csv names/en_id.csv", "en_id, en_text", ANNA),
    ("--csv names/en_id.csv --src-lang en --tgt-lang de", "en_id, en_text", ANNA),
    ("--tsv names/id_ind.tsv --src-lang en --tgt-lang id", "id, ind_Latn", ANNA),
    ("--tsv names/doc.tsv:id,en,de", "id, en, de", ANNA),
    ("--csv names/keyed.csv", "Key, English, German", ANNA),
]
REFUSED = [
    ("--csv columns/v12b.csv", "source_lang, target_lang"),
    ("--csv forms/t5b.csv", "--delimiter ';'"),
    ("--src forms/p4.en.srt --tgt forms/p4.de.srt", "subtitles"),
    ("--src forms/p4.en.po --tgt forms/p4.de.po", "gettext"),
    ("--tsv forms/v6.tsv", "add .gz"),
    ("--src forms/train.tags.en-de.en --tgt forms/train.tags.en-de.de", "lines of tags"),
    ("--src forms/a.en.php --tgt forms/a.de.php", "the same key"),
    ("--dataset forms/none", "forms/none"),
]
# Read, with these words in the output.
READ = [
    ("--tsv columns/n1.tsv --src-lang en --tgt-lang yue", "", NEWS),
    ("--csv columns/m1.csv", "", NEWS),
    ("--csv columns/k2.csv --tgt-lang fr-FR", "", NEWS),
    ("--jsonl columns/j9.jsonl:source,target --src-lang en --tgt-lang de", "skipped 3", NEWS),
    (
        "--src languages/u4.en --tgt languages/u4.ko --tgt-lang ko "
        "--dev languages/u4dev.eng_Latn languages/u4dev.kor_Hang",
        "",
        NEWS,
    ),
    (
        "--src languages/u5.en --tgt languages/u5.zh_TW "
        "--dev languages/u5dev.eng_Latn languages/u5dev.zho_Hant",
        "",
        NEWS,
    ),
    ("--dataset forms/d2 --src-lang en", "", ("TRAIN A", "TRAIN Eine", 130)),
    ("--dataset forms/d10", "", ("TRAIN A", "TRAIN Eine", 130)),
    ("--src forms/w5.src.en.sgm --tgt forms/w5.ref.de.sgm", "", NEWS),
    ("--csv forms/t4.csv", "", NEWS),
    (
        "--csv forms/t5b.csv --delimiter ; --src-lang en --tgt-lang de",
        "",
        ("Well, number 0", "Nun eben", 120),
    ),
    ("--tmx forms/u9.tmx", "", ("Press to A", "Drücken Sie zum Eine", 150)),
    ("--src forms/bt.en --tgt forms/bt.de", "", ("<BT> A", "Eine", 150)),
    ("--src forms/p3_0.en --tgt forms/p3_0.de", "", ("Yes, sir", "Erste", 151)),
    ("--opus-zip forms/z9.zip", "", NEWS),
    ("--tsv names/doc.tsv:-,en,de", "", ANNA),
    ("--csv names/keyed.csv --src-lang en --tgt-lang de", "", ANNA),
    ("--src names/pair.en --tgt names/pair.txt --src-lang en --tgt-lang de", "", ANNA),
    ("--src names/pair.en --tgt names/pair.kr --src-lang en --tgt-lang ko", "", ANNA),
    ("--src forms/bpe.en --tgt forms/bpe.de", "@@ (subwords)", ("Anna sees", "Anna sie@@", 120)),
    ("--tmx forms/noseg.tmx", "skipped 80 units", ("Anna sees", "Anna sieht", 160)),
    ("--csv forms/null.csv", "'NULL' is the translation of 40", ("Anna sees", "NULL", 120)),
    ("--csv forms/stray.csv", "lines 42 to 72", ("Anna sees", "Anna sieht", 210)),
    ("--src forms/dos.en --tgt forms/dos.de", "of control characters", ANNA),
]


@pytest.fixture
def cases(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = shared_data.parent / "cases"
    if not folder.is_dir():
        pytest.skip(f"there are no cases at {folder}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "show_training_time", lambda _: None)  # takes seconds
    return folder


def run(words: list[str], folder: Path) -> tuple[int, str]:
    """Run `nmtkit new mine` with these options, and return its exit status and its output."""
    args = []
    for word in words:
        is_path = "/" in word and not Path(word).is_absolute()
        args.append(f"{folder}/{word}" if is_path else word)
    result = CliRunner().invoke(cli.app, ["new", "mine", *args])
    return result.exit_code, f"{result.output}{result.exception or ''}"


def check_pairs(expected: tuple[str, str, int]) -> None:
    src, tgt, n_pairs = expected
    recipe = load_recipe("./mine.toml")
    [source] = recipe.corpus.train
    assert isinstance(source, Source)
    rows = rows_of(source, recipe.corpus.src_lang, recipe.corpus.tgt_lang)
    assert rows[0][0].startswith(src)
    assert rows[0][1].startswith(tgt)
    assert len(rows) == n_pairs


@pytest.mark.parametrize(("options", "words", "pairs"), ASKED)
def test_asked(options: str, words: str, pairs: tuple[str, str, int], cases: Path) -> None:
    status, output = run(options.split(), cases)
    assert status != 0
    assert re.search(words, output)
    _, _, command_line = output.partition("for example: nmtkit new mine ")
    status, output = run(shlex.split(command_line), cases)
    assert status == 0, output
    check_pairs(pairs)


@pytest.mark.parametrize(("options", "words"), REFUSED)
def test_refused(options: str, words: str, cases: Path) -> None:
    status, output = run(options.split(), cases)
    assert status != 0
    assert words in output
    assert not Path("mine.toml").exists()


@pytest.mark.parametrize(("options", "words", "pairs"), READ)
@pytest.mark.usefixtures("new_process")
def test_read(options: str, words: str, pairs: tuple[str, str, int], cases: Path) -> None:
    status, output = run(options.split(), cases)
    assert status == 0, output
    assert words in output
    check_pairs(pairs)
