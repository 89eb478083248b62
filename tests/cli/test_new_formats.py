"""`nmtkit new` with files in many formats, and other commands that read texts."""

import gzip
import inspect
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from texts import NO_DOWNLOADS
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.cli import new as command
from nmtkit.config.loading import load_recipe
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.kinds import KINDS
from nmtkit.sources.parallel import find_corpus
from nmtkit.sources.source import Row
from nmtkit.utils.errors import UserError

PAIRS = [(f"Well, sentence {i}", f"Nun, Satz {i}") for i in range(110)]
LANGS = ("--src-lang", "en", "--tgt-lang", "de")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "show_training_time", lambda _: None)  # takes seconds
    return tmp_path


def run(*args: str) -> str:
    result = CliRunner().invoke(cli.app, args)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_hints_name_existing_options() -> None:
    options = inspect.signature(command.new).parameters
    for kind in KINDS:
        assert kind.has_option == (kind.key in options), kind.key
    content = '<dataset><doc id="d"><src lang="en"><p><seg id="1">a</seg></p></src></doc></dataset>'
    Path("a.en").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match="the key xml in a recipe; if"):
        run("new", "mine", "--src", "a.en", "--tgt", "a.en", *LANGS)


def train_rows(*args: str) -> list[Row]:
    """The training pairs of the recipe that `nmtkit new` writes."""
    run("new", "mine", *args)
    recipe = load_recipe("./mine.toml")
    [source] = recipe.corpus.train
    return list(
        find_corpus(source, recipe.corpus.src_lang, recipe.corpus.tgt_lang).rows(NO_DOWNLOADS)
    )


def write(name: str, lines: list[str], end: str = "\n") -> None:
    Path(name).write_text("".join(f"{line}{end}" for line in lines), encoding="utf-8", newline="")


def test_new_reads_semicolons() -> None:
    write("a.csv", ["sep=;", "en;de", *(f'"{src}";{tgt}' for src, tgt in PAIRS)], "\r\n")
    assert train_rows("--csv", "a.csv") == PAIRS


def test_new_asks_for_the_delimiter() -> None:
    write("a.csv", [f"{src};{tgt.replace(',', '')}" for src, tgt in PAIRS])
    with pytest.raises(UserError, match="--delimiter"):
        run("new", "mine", "--csv", "a.csv", *LANGS)
    rows = train_rows("--csv", "a.csv", "--delimiter", ";", *LANGS)
    assert rows == [(src, tgt.replace(",", "")) for src, tgt in PAIRS]


def test_invisible_characters_of_names_are_kept() -> None:
    # A no-break space, an ideographic space, and joiners of a script and of an emoji.
    name = "a\u00a0\u3000\u200c\U0001f469\u200d\U0001f467.tsv"
    write(name, ["No.\u00a0\U000e0041\ten\tde", *(f"1\t{src}\t{tgt}" for src, tgt in PAIRS)])
    assert train_rows("--tsv", name, *LANGS) == PAIRS
    assert all(line.isprintable() for line in Path("mine.toml").read_text("utf-8").split("\n"))


@pytest.mark.parametrize("options", [[], ["--delimiter", ";"]])
def test_new_refuses_marks_after_spaces(options: list[str]) -> None:
    rows = [f'{number}; "{src}"; "{tgt}"' for number, (src, tgt) in enumerate(PAIRS)]
    write("a.csv", ["n; en; de", *rows])
    with pytest.raises(UserError, match=r"a\.csv has spaces .*Well, .*; remove these spaces"):
        run("new", "mine", "--csv", "a.csv", *options)
    # In quoted cells, such marks are text.
    quoted = [(f'{src}; "so {number}"', tgt) for number, (src, tgt) in enumerate(PAIRS)]
    write(
        "a.csv", ["en;de", *(f'"{src.replace(chr(34), chr(34) * 2)}";{tgt}' for src, tgt in quoted)]
    )
    assert train_rows("--csv", "a.csv", *options) == quoted


def test_new_reads_quoted_columns() -> None:
    write("a.tsv", [f'"{src}"\t"{tgt}"' for src, tgt in PAIRS])
    assert train_rows("--tsv", "a.tsv", *LANGS) == PAIRS
    Path("mine.toml").unlink()
    for held_out in Path("mine").iterdir():
        held_out.unlink()
    rows = train_rows("--tsv", "a.tsv", "--unquoted", *LANGS)
    assert rows == [(f'"{src}"', f'"{tgt}"') for src, tgt in PAIRS]


def test_new_keeps_quotations() -> None:
    quotations = [(f'"{src}"' if i % 7 else src, tgt) for i, (src, tgt) in enumerate(PAIRS)]
    write("a.tsv", ["\t".join(pair) for pair in quotations])
    assert train_rows("--tsv", "a.tsv", *LANGS) == quotations


def test_new_pairs_sgml_by_ids() -> None:
    for name, side, order in (("a.en.sgm", 0, 1), ("a.de.sgm", 1, -1)):
        lines = ["<srcset>"]
        for start in range(0, len(PAIRS), 10)[::order]:
            lines.append(f'<doc docid="d{start}">')
            for number, pair in enumerate(PAIRS[start : start + 10]):
                lines.append(f'<seg id="{number}">{pair[side]}</seg>')
            lines.append("</doc>")
        write(name, lines)
    assert train_rows("--src", "a.en.sgm", "--tgt", "a.de.sgm") == PAIRS
    assert FilePair(src="a.en.sgm", tgt="a.de.sgm").description() == "segments of SGML"
    assert FilePair(src="a.en.sgm", tgt="a.de.sgm", plain=True).description() == "plain text"
    first, *documents = Path("a.de.sgm").read_text(encoding="utf-8").split("<doc ")
    write("back.de.sgm", [first, *(f"<doc {document}" for document in documents[::-1])])
    scores = json.loads(run("score", "back.de.sgm", "--ref", "a.de.sgm", "--lang", "de", "--json"))
    assert scores["back.de.sgm"]["sacrebleu"]["score"] == pytest.approx(100)


@pytest.mark.parametrize("indent", [None, 2])
def test_json_array_is_named(indent: int | None) -> None:
    rows = [{"en": src, "de": tgt} for src, tgt in PAIRS]
    write("a.jsonl", [json.dumps(rows, indent=indent)])
    with pytest.raises(UserError, match="jq -c") as error:
        run("new", "mine", "--jsonl", "a.jsonl")
    assert "{'en'" not in str(error.value)


def test_new_reads_one_split() -> None:
    for split, start in (("train", 0), ("test", 1_000)):
        Path("d/data").mkdir(parents=True, exist_ok=True)
        columns = {
            "en": [f"yes {start + i}" for i in range(110)],
            "de": [f"ja {start + i}" for i in range(110)],
        }
        parquet.write_table(pa.table(columns), f"d/data/{split}-00000-of-00001.parquet")
    assert train_rows("--dataset", "d") == [(f"yes {i}", f"ja {i}") for i in range(110)]


def test_plain_text_that_looks_otherwise() -> None:
    lines = [f"<s> {src} </s>" for src, _ in PAIRS]
    write("a.en", lines)
    write("a.de", [tgt for _, tgt in PAIRS])
    files = ("--src", "a.en", "--tgt", "a.de")
    with pytest.raises(UserError, match="--plain"):
        run("new", "mine", *files)
    rows = train_rows(*files, "--plain")
    assert rows == list(zip(lines, (tgt for _, tgt in PAIRS), strict=True))
    with pytest.raises(UserError, match="--plain"):
        run("score", "a.en", "a.en", "--lang", "en")
    scores = json.loads(run("score", "a.en", "a.de", "--lang", "en", "--plain", "--json"))
    assert scores["a.en"]["test_set"]["lines"] == 110


@pytest.mark.parametrize("form", ["<p>{}</p>", "{}|1", '"{}",'])
def test_held_out_text_that_looks_otherwise(form: str) -> None:
    rows = [{"en": form.format(src), "de": form.format(tgt)} for src, tgt in PAIRS]
    write("a.jsonl", [json.dumps(row) for row in rows])
    run("new", "mine", "--jsonl", "a.jsonl", *LANGS)
    recipe = load_recipe("./mine.toml")
    for source in (*recipe.corpus.dev_sources, *recipe.test.sets):
        corpus = find_corpus(source, recipe.corpus.src_lang, recipe.corpus.tgt_lang)
        for src, tgt in corpus.pairs(NO_DOWNLOADS):
            assert {"en": src, "de": tgt} in rows


@pytest.mark.parametrize("option", ["tsv", "csv", "jsonl", "tmx", "src", "dev"])
def test_gzip_is_named(option: str) -> None:
    Path("a.txt").write_bytes(gzip.compress(b"yes\tja\n" * 200))
    write("b.txt", [tgt for _, tgt in PAIRS])
    args = {"src": ["--src", "a.txt", "--tgt", "b.txt"]}.get(option, [f"--{option}", "a.txt"])
    if option == "dev":
        args = ["--src", "b.txt", "--tgt", "b.txt", "--dev", "a.txt", "b.txt"]
    with pytest.raises(UserError, match=r"a\.txt .*gzip; add \.gz"):
        run("new", "mine", *args, *LANGS)
    with pytest.raises(UserError, match=r"a\.txt .*gzip; add \.gz"):
        run("score", "a.txt", "b.txt", "--lang", "de")


@pytest.mark.parametrize("option", ["tsv", "csv", "jsonl", "tmx", "src"])
def test_subtitles_are_named(option: str) -> None:
    lines = []
    for i, (src, _) in enumerate(PAIRS):
        lines += [f"{i + 1}", f"00:00:{i % 60:02},000 --> 00:00:{i % 60:02},900", src, ""]
    write("a.srt", lines)
    args = ["--src", "a.srt", "--tgt", "a.srt"] if option == "src" else [f"--{option}", "a.srt"]
    with pytest.raises(UserError, match=r"a\.srt .*subtitles.*sub2po"):
        run("new", "mine", *args, *LANGS)


def test_plain_option_of_commands(bundle: Path) -> None:
    lines = [f"<s> {src} </s>" for src, _ in PAIRS[:9]]
    write("a.en", lines)
    write("b.en", lines)
    commands = (
        ("translate", "--bundle", str(bundle), "-i", "a.en", "-o", "out"),
        ("force", "a.en", "b.en", "--bundle", str(bundle)),
        ("compare", "a.en", "b.en", "--ref", "a.en", "--lang", "en"),
    )
    for args in commands:
        with pytest.raises(UserError, match=r"a\.en .*XML.*--plain"):
            run(*args)
        run(*args, "--plain")
    assert len(Path("out").read_text(encoding="utf-8").split("\n")) == 10


def test_commands_name_no_options_of_others(bundle: Path) -> None:
    parquet.write_table(pa.table({"en": ["a"], "de": ["b"]}), "a.parquet")
    write("a.csv", [f'"{src}","{tgt}"' for src, tgt in PAIRS])
    write("a.tsv", [f"{src}\t{tgt}" for src, tgt in PAIRS])
    write("plain", ["a"])
    for path in ("a.parquet", "a.csv", "a.tsv"):
        for args in (
            ("translate", "--bundle", str(bundle), "-i", path),
            ("force", "plain", path, "--bundle", str(bundle)),
            ("score", "plain", path, "--lang", "de"),
            ("compare", "plain", path, "--ref", "plain", "--lang", "de"),
        ):
            with pytest.raises(UserError, match=f"^{path} is not .* column") as error:
                run(*args)
            assert not {"--dataset", "--csv", "--tsv"} & {*str(error.value).split()}
        with pytest.raises(UserError, match=r"pass a recipe in TOML"):
            run("inspect", f"./{path}")


@pytest.mark.usefixtures("new_process")
def test_faults_are_printed_with_first_pairs() -> None:
    units = []
    for src, tgt in PAIRS:
        units.append(
            f'<tu><tuv xml:lang="en"><seg>{src}</seg></tuv><tuv xml:lang="de"><seg>{tgt}</seg>'
            f'</tuv></tu>\n<tu><tuv xml:lang="en"/><tuv xml:lang="de"><seg>{tgt}</seg></tuv></tu>'
        )
    write("a.tmx", ['<tmx version="1.4"><body>', *units, "</body></tmx>"])
    rows = [f'"k{i}. {src}","k{i}. {tgt}"' for i, (src, tgt) in enumerate(PAIRS)]
    write("keyed.csv", ["en,de", *rows])
    write("a.en", [*(src for src, _ in PAIRS), "one", "", "three"])
    write("a.de", [*(tgt for _, tgt in PAIRS), "", " ", "drei"])
    args = ["--tmx", "a.tmx", "--csv", "keyed.csv", "--src", "a.en", "--tgt", "a.de"]
    output = " ".join(CliRunner().invoke(cli.app, ["new", "mine", *args]).output.split())
    assert f"a.tmx: skipped {len(PAIRS)} units: {len(PAIRS)} with a blank en" in output
    assert "keyed.csv: both sides begin with the same key or number" in output
    assert "cleaning will drop 2 pairs with a blank side" in output
