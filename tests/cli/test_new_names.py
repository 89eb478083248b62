"""`nmtkit new`: whose name is it? Columns, keys and suffixes that are languages, or seem to be."""

import csv
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from texts import DE, EN, rows_of
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.cli import new as command
from nmtkit.config.loading import load_recipe
from nmtkit.new.input_texts import InputText
from nmtkit.new.new_recipe import toml_value
from nmtkit.sources.parallel import find_corpus
from nmtkit.sources.sides import Variants
from nmtkit.sources.source import Row, Source
from nmtkit.sources.text_file import TextFile, read_lines
from nmtkit.utils.errors import UserError

PAIRS = [(f"This is sentence {n}, and no other.", f"Dies ist Satz {n} allein.") for n in range(120)]
LANGS = ("--src-lang", "en", "--tgt-lang", "de")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "show_training_time", lambda _: None)  # takes seconds
    return tmp_path


def run(*args: str) -> str:
    """Run `nmtkit new mine`, and return its messages."""
    result = CliRunner().invoke(cli.app, ["new", "mine", *args])
    if result.exception is not None:
        raise result.exception
    return result.stderr


def train_rows() -> list[Row]:
    recipe = load_recipe("./mine.toml")
    [source] = recipe.corpus.train
    assert isinstance(source, Source)
    return rows_of(source, recipe.corpus.src_lang, recipe.corpus.tgt_lang)


def write(path: str, columns: Sequence[str]) -> None:
    """Write the sentences to the columns S and T of a header such as "id S T", or to keys.

    Names are separated by spaces; "|" stands for a space in one. S= and T= precede the names of the
    columns of sentences; the others have short cells.
    """
    rows: list[dict[str, str]] = []
    for number, (src, tgt) in enumerate(PAIRS):
        row = {}
        for position, column in enumerate(columns):
            cell = {"S=": src, "T=": tgt}.get(column[:2], f"k{number}.{position}")
            row[re.sub("^[ST]=", "", column)] = cell
        rows.append(row)
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        if path.endswith(".jsonl"):
            file.writelines(f"{json.dumps(row)}\n" for row in rows)
        else:
            writer = csv.DictWriter(file, rows[0], delimiter="\t" if path.endswith("tsv") else ",")
            writer.writeheader()
            writer.writerows(rows)


ASKED = [
    ("a.csv", "Key S=Text T=German", ()),
    ("a.csv", "Key,S=English (US),T=German (Germany),Comment", ()),
    ("a.jsonl", "id S=en T=translation", ()),
    ("a.jsonl", "doc_id seg_id S=original T=translation", ()),
    ("a.csv", "en_id S=en_text de_id T=de_text", ()),
    ("a.csv", "en_id S=en_text de_id T=de_text", LANGS),
    ("a.csv", "Key S=English T=German", ()),
    ("a.tsv", "id S=en T=de", ()),
    ("a.tsv", "url S=en T=de", ()),
    ("a.tsv", "S=en T=translation is_valid", ("--src-lang", "en", "--tgt-lang", "is")),
    ("a.tsv", "id S=en T=ind_Latn", ("--src-lang", "en", "--tgt-lang", "id")),
    ("a.tsv", "no S=en T=nor", ("--src-lang", "en", "--tgt-lang", "no")),
    ("a.tsv", "no S=en T=nob", ("--src-lang", "en", "--tgt-lang", "no")),
    ("a.tsv", "id S=en_ca T=fr_ca", ("--src-lang", "en-US", "--tgt-lang", "fr-FR")),
    ("a.jsonl", "hi S=English T=Hindi", ("--src-lang", "en", "--tgt-lang", "hi")),
    ("a.jsonl", "hi S=English T=translation", ()),
    ("a.jsonl", "pos tag S=English T=meta", ()),
    ("a.csv", "Nr.,S=Englisch,T=Deutsch", ()),
    ("a.csv", "Nr.,T=Deutsch,S=Englisch", LANGS),
    ("a.csv", 'id,S="Text, English",T=other', LANGS),
    ("a.csv", "id,S=text:en,T=text:x", LANGS),
]


@pytest.mark.parametrize(("path", "columns", "options"), ASKED)
def test_unclear_columns_are_asked_for(path: str, columns: str, options: tuple[str, ...]) -> None:
    """The command in the message works as it is, and reads the sentences."""
    names = next(csv.reader([columns], delimiter="," if "," in columns else " "))
    if '"' in columns:
        names = ["id", "S=Text, English", "T=other"]
    write(path, names)
    with pytest.raises(UserError) as error:
        run(f"--{path[2:]}", path, *options, "--no-trial")
    for name in names:
        assert re.sub("^[ST]=", "", name) in str(error.value)
    assert not Path("mine.toml").exists()
    program, subcommand, name, *args = shlex.split(str(error.value).rpartition("example: ")[2])
    assert (program, subcommand, name) == ("nmtkit", "new", "mine")
    assert "--no-trial" in args
    run(*args)
    assert train_rows() == PAIRS


@pytest.mark.parametrize(
    ("path", "columns", "options"),
    [
        ("a.csv", "S=English German|comment T=German", ()),
        ("a.csv", "S=English German|comment T=German", LANGS),
        ("a.csv", "Key S=English T=German", LANGS),
        ("a.csv", "id S=text_en T=text_de", LANGS),
        ("a.csv", "T=text_de S=text_en", LANGS),
        ("a.jsonl", "score S=source_en T=target_de", LANGS),
        ("a.csv", "T=de_DE S=en", ()),
        ("a.csv", "key S=en T=pt-BR", ("--src-lang", "en", "--tgt-lang", "pt-BR")),
        ("a.csv", "key S=text_en T=text_pt-BR", ("--src-lang", "en", "--tgt-lang", "pt-BR")),
        ("a.csv", "S=eng_Latn T=deu_Latn", ()),
        ("a.tsv", "no S=en T=nob", ("--src-lang", "en", "--tgt-lang", "nb")),
        ("a.tsv", "no S=is T=to", ("--src-lang", "is", "--tgt-lang", "to")),
        ("a.tsv", "am S=so T=hi", ("--src-lang", "so", "--tgt-lang", "hi")),
    ],
)
def test_named_columns_are_read(path: str, columns: str, options: tuple[str, ...]) -> None:
    write(path, [name.replace("|", " ") for name in columns.split()])
    run(f"--{path[2:]}", path, *options)
    rows = train_rows()
    assert rows == ([pair[::-1] for pair in PAIRS] if columns == "T=de_DE S=en" else PAIRS)


def test_columns_are_skipped() -> None:
    """The example in the help works as it is."""
    rows = [f"{number}\t{src}\t{tgt}" for number, (src, tgt) in enumerate(PAIRS)]
    Path("doc.tsv").write_text("\n".join([*rows, ""]), encoding="utf-8", newline="\n")
    cells = [row.partition("\t")[2] for row in rows]
    Path("two.tsv").write_text("\n".join([*cells, ""]), encoding="utf-8", newline="\n")
    help_text = CliRunner().invoke(cli.app, ["new", "--help"]).stdout
    [columns] = re.findall(r"append (:\S+)", help_text.partition("--csv")[0])
    run("--tsv", f"doc.tsv{columns}")
    assert train_rows() == PAIRS
    with pytest.raises(UserError, match=r"for example: .* doc\.tsv:-,en,de .*--src-lang en"):
        run("--tsv", "doc.tsv:id,en,de")
    for path in ("doc.tsv", "two.tsv"):
        with pytest.raises(UserError, match=r"--src-lang en --tgt-lang de$"):
            run("--tsv", path)  # "is" is a word of a sentence, not Icelandic
    with pytest.raises(UserError, match="3"):
        run("--tsv", "doc.tsv:-,en", *LANGS)


def test_ids_are_warned_of() -> None:
    """The only columns that are named after the languages have no sentences."""
    write("a.csv", ["en_id", "de_id", "S=original", "T=translation"])
    result = CliRunner().invoke(cli.app, ["new", "mine", "--csv", "a.csv", *LANGS])
    for lang in ("en", "de"):
        assert re.search(rf"warning: a\.csv: 120 of 120 pairs in {lang} .* key", result.stdout)


@pytest.mark.parametrize("values", [{}, {"id": "7"}, {"en": "Title", "de": "Titel", "to": "x"}])
def test_translation_object(values: dict[str, str]) -> None:
    lines = []
    for src, tgt in PAIRS:
        lines.append(json.dumps({**values, "translation": {"de": tgt, "en": src}}))
    Path("a.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8", newline="\n")
    run("--jsonl", "a.jsonl", *LANGS)
    assert train_rows() == PAIRS
    Path("mine.toml").unlink()
    for path in Path("mine").iterdir():
        path.unlink()
    run("--jsonl", "a.jsonl")
    assert train_rows() == [pair[::-1] for pair in PAIRS]


@pytest.mark.parametrize(
    ("suffixes", "langs", "is_swapped"),
    [
        (("en", "txt"), ("en", "de"), False),
        (("en", "kr"), ("en", "ko"), False),
        (("de", "fr"), ("en", "cs"), False),
        (("de", "en"), ("en", "de"), True),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_suffixes_do_not_contradict_the_user(
    suffixes: tuple[str, str],
    langs: tuple[str, str],
    is_swapped: bool,
    reverse: bool,
) -> None:
    for suffix, column in zip(suffixes, zip(*PAIRS, strict=True), strict=True):
        Path(f"a.{suffix}").write_text("\n".join([*column, ""]), encoding="utf-8", newline="\n")
    files = ("--src", f"a.{suffixes[0]}", "--tgt", f"a.{suffixes[1]}")
    options = ("--src-lang", langs[0], "--tgt-lang", langs[1], *["--reverse"] * reverse)
    messages = run(*files, *options)
    assert train_rows() == [pair[::-1] if reverse else pair for pair in PAIRS]
    assert messages.count("are named") == is_swapped


def test_same_language_twice() -> None:
    write("a.csv", ["S=complex", "T=simple"])
    with pytest.raises(UserError, match=r"en_GB .*en_US"):
        run("--csv", "a.csv:complex,simple", "--src-lang", "en", "--tgt-lang", "en")
    run("--csv", "a.csv:complex,simple", "--src-lang", "en_GB", "--tgt-lang", "en_US")
    assert train_rows() == PAIRS


def test_row_languages_get_no_example() -> None:
    write("a.csv", ["S=source", "T=target", "source_lang"])
    for options in ((), LANGS):
        with pytest.raises(UserError, match="source_lang") as error:
            run("--csv", "a.csv", *options)
        assert "nmtkit new" not in str(error.value)


def test_columns_without_text_are_named() -> None:
    columns = {"en": [[src] for src, _ in PAIRS], "de": [[tgt] for _, tgt in PAIRS]}
    parquet.write_table(pa.table({"id": ["x"] * len(PAIRS), **columns}), "a.parquet")
    lines = [json.dumps({"id": "x", "en": [src], "de": [tgt]}) for src, tgt in PAIRS]
    Path("a.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8", newline="\n")
    for option, path in (("--dataset", "a.parquet"), ("--jsonl", "a.jsonl")):
        for options in ((), LANGS):
            with pytest.raises(UserError, match=r"en \(list.*de \(list"):
                run(option, path, *options)
        with pytest.raises(UserError, match=r"no texts in 'en'.* en \(list"):
            run(option, f"{path}:en,de", *LANGS)


def test_string_views_are_read() -> None:
    sides = zip(("en", "de"), zip(*PAIRS, strict=True), strict=True)
    table = pa.table({name: pa.array(column, pa.string_view()) for name, column in sides})
    parquet.write_table(table, "a.parquet")
    run("--dataset", "a.parquet")
    assert train_rows() == PAIRS


def test_tmx_with_prefix() -> None:
    units = []
    for src, tgt in PAIRS:
        sides = []
        for lang, text in (("en", src), ("de", tgt)):
            sides.append(f'<t:tuv xml:lang="{lang}"><t:seg>{text}</t:seg></t:tuv>')
        units.append(f"<t:tu>{''.join(sides)}</t:tu>")
    body = "\n".join(units)
    Path("a.tmx").write_text(f'<t:tmx xmlns:t="x"><t:body>\n{body}\n</t:body></t:tmx>', "utf-8")
    run("--tmx", "a.tmx")
    assert train_rows() == PAIRS


class LinePairs(Source):
    """A source as CONTRIBUTING describes it, whose two sides have an order and no names."""

    key = "line_pairs"
    path_keys = ("line_pairs",)
    title = "alternating lines"

    line_pairs: str

    @classmethod
    def names_in(cls, _path: str, _dialect: object = None) -> Sequence[str]:
        return ()

    def rows(self, texts: Sequence[TextFile], _: Variants) -> Iterator[Row]:
        lines = list(read_lines(texts[0]))
        return zip(lines[::2], lines[1::2], strict=True)


def test_unnamed_sides_are_reversed() -> None:
    text = "".join(f"{src}\n{tgt}\n" for src, tgt in PAIRS)
    Path("a.txt").write_text(text, encoding="utf-8", newline="\n")
    source = InputText(LinePairs, ("a.txt",)).source((EN, DE), reverse=False)
    opposite = InputText(LinePairs, ("a.txt",)).source((EN, DE), reverse=True)
    assert rows_of(source) == PAIRS
    assert rows_of(opposite, DE, EN) == [pair[::-1] for pair in PAIRS]
    assert rows_of(opposite.reversed()) == PAIRS
    assert "swapped = true" in toml_value(opposite)
    assert "swapped" not in toml_value(source)
    identities = {tuple(find_corpus(one, EN, DE).identity()) for one in (source, opposite)}
    assert len(identities) == 2
