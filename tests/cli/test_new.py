"""Recipes that `nmtkit new` writes for a user's own text."""

import csv
import gzip
import json
import os
import random
import re
import shlex
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import datasets
import pytest
from bundles import publish_bundle
from models import tiny
from system import kills
from system.command import contents, read_lines, traces
from texts import NO_DOWNLOADS
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.cli import new as command
from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.decoding.bundle import open_bundle
from nmtkit.new.input_texts import InputText, find_languages
from nmtkit.new.new_recipe import SIZES
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.parallel import find_corpus
from nmtkit.sources.table import Tsv
from nmtkit.stages import prepare
from nmtkit.stages.pipeline import Pipeline
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language

SHOW_TRAINING_TIME = command.show_training_time
WORDS = ["ein", "zwo", "drei", "vier", "fünf", "sechs", "acht"]


def pairs(n: int) -> list[tuple[str, str]]:
    generator = random.Random(1)
    words = [generator.choices(WORDS, k=generator.randint(4, 12)) for _ in range(n)]
    return [(" ".join(src), " ".join(reversed(src)) + " !") for src in words]


def write(path: str, lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines).encode()
    Path(path).write_bytes(gzip.compress(text) if path.endswith(".gz") else text)


@pytest.fixture(autouse=True)
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """A text of 400 pairs as train.en.gz and train.de.gz, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "show_training_time", lambda _: None)  # takes seconds
    found = pairs(400)
    write("train.en.gz", [src for src, _ in found])
    write("train.de.gz", [tgt for _, tgt in found])
    return found


FILES = ("--src", "train.en.gz", "--tgt", "train.de.gz")
LANGS = ("--src-lang", "en", "--tgt-lang", "de")


def new(*args: str) -> str:
    ended = CliRunner().invoke(cli.app, ["new", *args])
    if ended.exception is not None:
        raise ended.exception
    return ended.stdout


def lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_new_writes_recipe_and_held_out(
    text: list[tuple[str, str]],
) -> None:
    printed = new("mine", *FILES)
    assert "nmtkit run ./mine.toml" in printed
    recipe = load_recipe("./mine.toml")
    assert recipe.name == "mine"
    assert (recipe.corpus.src_lang, recipe.corpus.tgt_lang) == Language.parse_pair("en-de")
    dev = list(zip(lines("mine/dev.en"), lines("mine/dev.de"), strict=True))
    test = list(zip(lines("mine/test.en"), lines("mine/test.de"), strict=True))
    assert (len(dev), len(test)) == (20, 20)
    held_out = {*dev, *test}
    assert len(held_out) == 40
    assert held_out < set(text)
    assert dev == sorted(dev, key=text.index)
    assert recipe.corpus.drop_held_out == (recipe.corpus.dev, recipe.test.sets[0])
    before = {path: path.read_bytes() for path in (Path("mine.toml"), *Path("mine").iterdir())}
    new("mine.toml", *FILES)
    assert before == {path: path.read_bytes() for path in before}


def test_new_after_kills(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    work = kills.command("new", "mine", *FILES)
    place = tmp_path_factory.mktemp("kills")
    reference = kills.run_uninterrupted(work, tmp_path, place / "uninterrupted")
    for number in range(1, reference.operations + 1):
        folder = Path(shutil.copytree(tmp_path, place / f"{number}"))
        order = list(kills.ORDERS)[number % 3]
        kill_at = kills.BeforeOperation(number, number % 2 == 0)
        assert kills.attempt(work, folder, order, kill_at).killed
        assert kills.attempt(work, folder, order).failure == ""
        assert contents(folder) == contents(reference.after)
        assert traces(folder).keys() == traces(reference.after).keys()


@pytest.mark.parametrize("changed", ["mine.toml", "mine/dev.de"])
def test_users_files_are_not_overwritten(changed: str) -> None:
    new("mine", *FILES)
    Path(changed).write_text("mine", encoding="utf-8")
    Path("mine/test.en").unlink()
    with pytest.raises(UserError, match=f"^{changed} exists"):
        new("mine", *FILES)
    assert lines(changed) == ["mine"]
    assert [path.name for path in sorted(Path().rglob("*"))] == [
        *("mine", "dev.de", "dev.en", "test.de", "mine.toml", "train.de.gz", "train.en.gz")
    ]
    Path(".yours.toml.nmtkit").mkdir()
    Path(".yours.toml.nmtkit/dev.en").touch()
    with pytest.raises(UserError, match=r"/\.yours\.toml\.nmtkit exists"):
        new("yours", *FILES)
    assert not Path(".yours.toml.nmtkit/dev.en").stat().st_size
    # An error at the last file leaves none of the others.
    assert not Path("yours").exists()


def test_new_a_second_time(text: list[tuple[str, str]]) -> None:
    new("mine", *FILES)
    before = contents(Path())
    new("mine", *FILES)
    assert contents(Path()) == before
    for side, lang in enumerate(("en", "de")):
        write(f"other.{lang}", [pair[side] + "!" for pair in text])
    other = ("--src", "other.en", "--tgt", "other.de")
    with pytest.raises(UserError, match="choose another name for the recipe, or") as refused:
        new("mine", *other)
    assert contents(Path()).items() >= before.items()
    # The message ends with the command that deletes what is in the way.
    command = shlex.split(str(refused.value).rpartition(": ")[2])
    assert command.pop(0) == "rm"
    for path in command:
        Path(path).unlink()
    new("mine", *other)
    assert lines("mine/dev.en")[0].endswith("!")


def test_own_sets_are_not_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    write("d.en", ["a"])
    write("d.de", ["b"])
    new("mine", *FILES, "--dev", "d.en", "d.de", "--test", "d.en", "d.de")
    recipe = load_recipe("./mine.toml")
    assert recipe.test.sets == (
        FilePair(name="test", src=str(Path("d.en").resolve()), tgt=str(Path("d.de").resolve())),
    )
    assert not Path("mine").exists()
    monkeypatch.setattr("nmtkit.new.survey.MAX_HELD_OUT", 7)
    new("other", *FILES, "--dev", "d.en", "d.de")
    assert sorted(path.name for path in Path("other").iterdir()) == ["test.de", "test.en"]
    assert len(lines("other/test.en")) == 7


def test_recipe_without_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise UserError("cuda has too little memory")

    monkeypatch.setattr(command, "show_training_time", SHOW_TRAINING_TIME)
    monkeypatch.setattr(command, "estimate_run", fail)
    assert "cuda has too little memory" in new("mine", *FILES)
    assert load_recipe("./mine.toml").name == "mine"


@pytest.mark.parametrize("named", [True, False])
def test_columns_of_tsv(text: list[tuple[str, str]], named: bool) -> None:
    rows = [f"{number}\t{tgt}\t{src}" for number, (src, tgt) in enumerate(text)]
    write("a.tsv", rows if named else ["id\tde\ten", *rows])
    new("mine", "--tsv", f"a.tsv{':id,de,en' * named}", *LANGS)
    path = str(Path("a.tsv").resolve())
    assert load_recipe("./mine.toml").corpus.train == (
        Tsv(tsv=path, columns=("id", "de", "en"), header=not named),
    )
    assert set(zip(lines("mine/dev.en"), lines("mine/dev.de"), strict=True)) < set(text)


def test_table_without_header(text: list[tuple[str, str]]) -> None:
    write("a.tsv", ["\t".join(pair) for pair in text])
    new("mine", "--tsv", "a.tsv", *LANGS)
    [train] = load_recipe("./mine.toml").corpus.train
    assert isinstance(train, Tsv)
    assert (train.columns, train.header) == (("en", "de"), False)
    write("b.tsv", ["1\t2\t3"])
    write("c.tsv", ["de\ten", "1\t2"])
    for args, message in (
        (("b.tsv", *LANGS), r"not have both en and de .*1, 2, 3.*b\.tsv:"),
        (("b.tsv:en", *LANGS), r"b\.tsv has no column 'en'; .*1, 2, 3; if line 1 is text"),
        (("b.tsv:en,de,\udcff", *LANGS), r"\\udcff.* cannot be written to a recipe"),
        (("a.tsv", "--tsv", "c.tsv"), r"languages of a\.tsv .* --src-lang"),  # unknown order
    ):
        with pytest.raises(UserError, match=message):
            new("other", "--tsv", *args)


def test_table_with_unknown_header(text: list[tuple[str, str]]) -> None:
    """The header must not become training data, and the columns must not be swapped."""
    write("a.tsv", ["Satz\tSentence", *(f"{tgt}\t{src}" for src, tgt in text)])
    with pytest.raises(UserError, match=r"Satz, Sentence.*--tsv a\.tsv:SOURCE,TARGET"):
        new("mine", "--tsv", "a.tsv", *LANGS)
    assert not Path("mine.toml").exists()
    new("mine", "--tsv", "a.tsv:Sentence,Satz", *LANGS)
    [train] = load_recipe("./mine.toml").corpus.train
    assert list(find_corpus(train, *Language.parse_pair("en-de")).pairs(NO_DOWNLOADS)) == text


MIXED = (
    *("--src", "a.en", "--tgt", "a.de", "--src", "b.en", "--tgt", "b.de"),
    *("--tsv", "c:1.tsv:text_en,text_de"),
    *("--csv", "d.csv:Original,Ziel", "--jsonl", "e.jsonl", "--jsonl", "f.jsonl:x.to,x.of"),
    *("--tmx", "g.tmx", "--opus-zip", "h.zip", "--dataset", "i"),
)


@pytest.fixture
def mixed(text: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Texts in all formats and their pairs; the second text repeats 10 pairs of the first."""
    a, b, c, d, e, f, g, h, i = parts = [text[10 * n : 10 * n + 40] for n in range(0, 36, 4)]
    b[:10] = a[:10]
    for name, part in (("a", a), ("b", b)):
        for lang, column in zip(("en", "de"), zip(*part, strict=True), strict=True):
            write(f"{name}.{lang}", [*column])
    c[0] = (c[0][0], 'er "so"\tund')
    write("c", ["is not c:1.tsv, whose name has a colon"])
    with Path("c:1.tsv").open("w", encoding="utf-8", newline="") as file:
        tsv_rows = [("id", "url", "text_de", "text_en"), *(("1", "x", de, en) for en, de in c)]
        csv.writer(file, delimiter="\t").writerows(tsv_rows)
    rows = "".join(f'"1, ""2""";"{de}";{en}\r\n' for en, de in d)
    Path("d.csv").write_bytes(f"\ufeffID;Ziel;Original\r\n{rows}".encode())
    write("e.jsonl", [json.dumps({"src": en, "id": "7", "tgt": de}) for en, de in e])
    write("f.jsonl", [json.dumps({"x": {"of": de, "to": en}}) for en, de in f])
    units = (
        f'<tu><tuv lang="DE-DE"><seg>{de}</seg></tuv><tuv lang="en-US"><seg>{en}</seg></tuv></tu>'
        for en, de in g
    )
    write("g.tmx", ["<tmx><body>", *units, "</body></tmx>"])
    with zipfile.ZipFile("h.zip", "w") as archive:
        for lang, column in zip(("en", "de"), zip(*h, strict=True), strict=True):
            archive.writestr(f"X.de-en.{lang}", "".join(f"{line}\n" for line in column))
    dataset_rows = [{"translation": {"de": de, "en": en}} for en, de in i]
    datasets.Dataset.from_list(dataset_rows).save_to_disk("i")
    return parts


@pytest.mark.parametrize("reverse", [False, True])
def test_recipe_with_all_formats(
    mixed: list[list[tuple[str, str]]], reverse: bool, tmp_path: Path
) -> None:
    new("mine", *MIXED, *["--reverse"] * reverse)
    recipe = load_recipe("./mine.toml")
    langs = recipe.corpus.src_lang, recipe.corpus.tgt_lang
    assert langs == Language.parse_pair("de-en" if reverse else "en-de")
    held_out: Counter[int] = Counter()
    for number, (source, part) in enumerate(zip(recipe.corpus.train, mixed, strict=True)):
        found = list(find_corpus(source, *langs).pairs(NO_DOWNLOADS))
        assert found == [pair[::-1] if reverse else pair for pair in part]
        for name in ("dev", "test"):
            sides = (lines(f"mine/{name}.{lang}") for lang in langs)
            held_out[number] += len({*zip(*sides, strict=True)} & {*found})
    assert min(held_out.values()) > 0
    assert held_out.total() < 2 * 18 + 10
    pipeline = Pipeline(recipe, Settings(tmp_path / "runs", workers=1), "./mine.toml")
    counts = PreparedCorpus(prepare.run(pipeline)).counts().train
    assert sum(count["dropped"]["held_out"] for count in counts) == held_out.total()


def write_jsonl(path: str, values: list[dict[str, object]]) -> None:
    write(path, [json.dumps(value, ensure_ascii=False) for value in values])


@pytest.mark.parametrize(
    ("header", "options", "reason"),
    [
        ("ID\tGerman\tIndonesian", ("--tgt-lang", "id"), "candidates for id: ID, Indonesian"),
        ("id\tde\tyue", ("--tgt-lang", "yue"), None),
        ("x\tGerman\tEnglish", ("--tgt-lang", "en"), None),
        ("English comment\tGerman\tEnglish", (), None),
        ("French (Canada)\tGerman\tFrench (France)", ("--tgt-lang", "fr"), r"Canada.*France"),
        ("French (Canada)\tGerman\tFrench (France)", ("--tgt-lang", "fr-FR"), None),
        ("zh-Hans\tde\tzh-Hant", ("--tgt-lang", "zh"), "candidates for zh: zh-Hans, zh-Hant"),
        ("Chinese (Simplified)\tde\tzho_Hant", ("--tgt-lang", "zh-TW"), None),
        ("no\tde\tnn", ("--tgt-lang", "nn"), None),
        ("nn\tde\tno", ("--tgt-lang", "nb"), None),
        ("direction\tsource\ttarget", ("--tgt-lang", "en"), "has direction, so"),
        ("source_lang\tDeutsch\t中文", (), None),
        ("to\tas\tor", ("--src-lang", "as", "--tgt-lang", "or"), None),
        ("id\tis\tit", (), r"could not detect .*id, is, it.*--src-lang"),
        ("score\ttext_de\ttext_en", ("--tgt-lang", "en"), None),
        ("score\ttext_a\ttext_b", ("--tgt-lang", "en"), r"not have both de and en .*score, "),
    ],
)
def test_new_finds_columns(
    text: list[tuple[str, str]], header: str, options: tuple[str, ...], reason: str | None
) -> None:
    write("a.tsv", [header, *(f"{i}\t{src}\t{tgt}" for i, (src, tgt) in enumerate(text))])
    if options and "--src-lang" not in options:
        options = ("--src-lang", "de", *options)
    if reason is not None:
        with pytest.raises(UserError, match=reason):
            new("mine", "--tsv", "a.tsv", *options)
        names = header.split("\t")[1:]  # naming the columns, as the message suggests
        options = options or ("--src-lang", "is", "--tgt-lang", "it")
        printed = new("mine", "--tsv", f"a.tsv:{','.join(names)}", *options)
    else:
        printed = new("mine", "--tsv", "a.tsv", *options)
    langs = load_recipe("./mine.toml").corpus.src_lang, load_recipe("./mine.toml").corpus.tgt_lang
    for pair in text[:3]:
        for lang, side in zip(langs, pair, strict=True):
            assert re.search(rf"^ +{lang}: +{re.escape(side)}$", printed, re.MULTILINE)
    held_out = zip(lines(f"mine/dev.{langs[0]}"), lines(f"mine/dev.{langs[1]}"), strict=True)
    assert set(held_out) < set(text)


def test_new_finds_keys(text: list[tuple[str, str]]) -> None:
    values: list[dict[str, object]] = [
        {
            "id": str(number),
            "head": {"en": f"Page {number}", "de": f"Seite {number}"},
            "body": {"en": src, "de": tgt},
            "body_en": src,
        }
        for number, (src, tgt) in enumerate(text)
    ]
    write_jsonl("a.jsonl", values)
    with pytest.raises(
        UserError, match=r"candidates for en: head\.en, body\.en, body_en .*a\.jsonl:"
    ):
        new("mine", "--jsonl", "a.jsonl", *LANGS)
    with pytest.raises(UserError, match=r"no texts in 'body\.dd' .*; it has id, head\.en, "):
        new("mine", "--jsonl", "a.jsonl:body.en,body.dd", *LANGS)
    new("mine", "--jsonl", "a.jsonl:body.en,body.de", *LANGS)
    [train] = load_recipe("./mine.toml").corpus.train
    found = list(find_corpus(train, *Language.parse_pair("en-de")).pairs(NO_DOWNLOADS))
    assert found == text


def test_new_counts_empty_pairs(text: list[tuple[str, str]]) -> None:
    values: list[dict[str, object]] = [{"a": src, "b": tgt} for src, tgt in text]
    values[1:1] = [{"a": None, "b": None, "en": "no", "de": "nein"}, {"a": "x"}, {"b": "y", "a": 3}]
    write_jsonl("a.jsonl", values)
    arguments = ["new", "mine", "--jsonl", "a.jsonl:a,b", *LANGS]
    assert "warning: new: a.jsonl: skipped 3 units" in CliRunner().invoke(cli.app, arguments).stderr
    [train] = load_recipe("./mine.toml").corpus.train
    corpus = find_corpus(train, *Language.parse_pair("en-de"))
    assert list(corpus.pairs(NO_DOWNLOADS)) == text


@pytest.mark.parametrize("reverse", [False, True])
def test_new_shows_first_pairs(reverse: bool) -> None:
    bad = "\x1b[2J\u202e" + "long " * 50
    write("u.en", [bad, "two", "three", "four", *(f"x {n}" for n in range(200))])
    write("u.de", ["eins", "zwei", "drei", "vier", *(f"y {n}" for n in range(200))])
    printed = new("mine", "--src", "u.en", "--tgt", "u.de", *["--reverse"] * reverse).split("\n")
    labels = [line.split(":")[0].strip() for line in printed[1:7]]
    assert labels == (["de", "en"] if reverse else ["en", "de"]) * 3
    assert printed[1 + reverse].startswith("  en: <U+001B>[2J<U+202E>long long")
    assert max(map(len, printed[:7])) < 120
    assert not any("four" in line or "vier" in line for line in printed)


@pytest.mark.parametrize(
    ("suffixes", "dev"),
    [
        (("en", "ko"), ("eng_Latn", "kor_Hang")),
        (("en", "zh_TW"), ("eng_Latn", "zho_Hant")),
        (("en", "sr-Latn-RS"), ("en", "srp_Latn")),
        (("en", "nb"), ("eng", "no")),
        (("English", "German"), ("EN", "de-AT")),
        (("en", "pbt_Arab"), ("en", "pbt_Arab")),
    ],
)
def test_new_matches_suffixes(suffixes: tuple[str, str], dev: tuple[str, str]) -> None:
    for names in ((f"a.{suffixes[0]}", f"a.{suffixes[1]}"), (f"d.{dev[0]}", f"d.{dev[1]}")):
        for name, side in zip(names, ("src", "tgt"), strict=True):
            write(name, [f"{side} {n}" for n in range(120)])
    texts = ("--src", f"a.{suffixes[0]}", "--tgt", f"a.{suffixes[1]}")
    new("mine", *texts, "--dev", f"d.{dev[0]}", f"d.{dev[1]}")
    with pytest.raises(UserError, match="are named"):
        new("other", *texts, "--dev", f"d.{dev[1]}", f"d.{dev[0]}")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_bundle(tmp_path_factory.mktemp("bundle"), tiny(n_layers=1, dropout=0.2))


def test_recipe_from_bundle(bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(bundle, "b")
    new("mine", "--from", "b", *FILES)
    recipe = load_recipe("./mine.toml")
    pipeline = Pipeline(recipe, Settings(tmp_path / "runs"), "./mine.toml")
    parent = pipeline.bundle("train")
    vocabulary = pipeline.bundle("prepare")
    assert parent is not None
    assert vocabulary is not None
    assert parent.artifact.path == vocabulary.artifact.path
    assert recipe.model == parent.description.config
    assert recipe.decoding == parent.decoding
    assert recipe.training.start_from == str(tmp_path / "b")
    new("other", *FILES)
    assert (
        recipe.training.learning_rate_scale
        < load_recipe("./other.toml").training.learning_rate_scale / 4
    )
    assert recipe.training.patience
    shutil.copy("train.en.gz", "train.en-Shaw.gz")
    files = ("--src", "train.en-Shaw.gz", "--tgt", "train.de.gz", "--src-lang", "en-Shaw")
    new("variant", "--from", "b", *files)
    write("a.en", ["a"])
    write("a.fr", ["b"])
    for options, message in (
        (("--vocabulary", "bpe"), "--vocabulary cannot be used with --from"),
        (("--reverse",), "--reverse cannot be used with --from"),
        (
            ("--src-lang", "de", "--tgt-lang", "en"),
            r'was trained with .*en", but the recipe has',
        ),
        (
            ("--src", "a.en", "--tgt", "a.fr"),
            "a.en and a.fr are named en, fr, but the languages are en, de",
        ),
    ):
        with pytest.raises(UserError, match=message):
            new("third", "--from", "b", *FILES, *options)


def test_recipe_in_place_of_parent_bundle(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new("mine", *FILES)
    with pytest.raises(UserError, match=r"recipe mine: .* no artifact of `average`"):
        new("tuned", "--from", "./mine.toml", *FILES)
    with pytest.raises(UserError, match="neither a bundle nor a recipe"):
        new("tuned", "--from", "./nothing.toml", *FILES)
    average = open_bundle(bundle).artifact
    monkeypatch.setattr(Pipeline, "need", lambda _, stage: {"average": average}[stage])
    new("tuned", "--from", "./mine.toml", *FILES)
    assert load_recipe("./tuned.toml").training.start_from == str(bundle)


@pytest.mark.parametrize(
    ("src", "tgt", "langs"),
    [
        ("a.src.en.txt", "a.ref.de.txt", ("en", "de")),
        ("train.en", "train.de", ("en", "de")),
        ("a.b/OPUS.de-en.en.gz", "OPUS.de-en.de.gz", ("en", "de")),
        ("train.en.gz", "train.de", ("en", "de")),
        ("fr.txt", "pt-BR.txt", ("fr", "pt-BR")),
        ("eng_Latn.dev", "fin_Latn.dev", ("eng_Latn", "fin_Latn")),
        ("source.txt", "target.txt", None),
        ("a.src", "a.tgt", None),
        ("train.en", "valid.de", None),
        ("train.en", "de", None),
    ],
)
def test_find_languages_in_file_names(src: str, tgt: str, langs: tuple[str, str] | None) -> None:
    texts = [InputText(FilePair, (src, tgt))]
    for path in (src, tgt):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()
    if langs is None:
        with pytest.raises(UserError, match="--src-lang and --tgt-lang"):
            find_languages(texts, None, None, None)
    else:
        assert tuple(map(str, find_languages(texts, None, None, None))) == langs
    assert tuple(map(str, find_languages(texts, "cs", "sk", None))) == ("cs", "sk")


MISTAKES: list[tuple[tuple[str, ...], str]] = [
    (("mine",), "at least one text"),
    (("mine", *FILES, "--src", "a.en"), r"--src and --tgt \(got 2 and 1\); pass .*--tsv"),
    (("mine", *FILES, "--tmx", "train.en.gz:a,b", *LANGS), "has no columns; omit :a,b"),
    (("mine", *FILES, "--src-lang", "fr"), r"could not detect .*en, de.*--src-lang and --tgt-lang"),
    (
        ("mine", *FILES, "--src", "a.en", "--tgt", "a.fr"),
        "a.en and a.fr are named en, fr, but the languages are en, de",
    ),
    (("mine", *FILES, "--src", "a.en", "--tgt", "a.fr", *LANGS), "a.en does not exist"),
    (("mine", *FILES, "--dev", "a.fr", "a.en"), "named fr, en, but the languages are en, de"),
    (("mine", *FILES, "--src-lang", "../x"), "is not a language code"),
    (("a/b", *FILES), "'a/b' cannot name a recipe"),
    (("demo", *FILES), "a recipe demo comes with nmtkit"),
    (("demo.toml", *FILES), "a recipe demo comes with nmtkit"),
    (("mine", *FILES), "99 pairs; pass at least 100"),
    (("mine", "--src", "none.en", "--tgt", "none.de"), r"none\.en does not exist"),
    (("mine", "--src", "a.en", "--tgt", "./a.en", *LANGS), "twice"),
    (("mine", "--src", "\x7f.en", "--tgt", "\x7f.de"), "rename the file"),
    # Values that cannot be written to a recipe
    (
        ("mine", *FILES, "--src-lang", "en\nx = 1", *LANGS[2:]),
        "is not a language code",
    ),
    (("mine", *FILES, "--tgt-lang", "\udcff"), "is not a language code"),
    (
        ("mine", *FILES, "--dev", "a\udcff", "b"),
        "cannot be written to a recipe",
    ),
    (("mine", *FILES, "--tsv", os.devnull), "/dev/null"),
    (("mine", *FILES, "--tmx", ""), "cannot read"),
    (("mine", *FILES, "--test", "train.en", "train.de.gz"), "train.en does not exist"),
]


def assert_refused(message: str, *args: str) -> None:
    with pytest.raises(UserError, match=message):
        new(*args)
    assert sorted(path.name for path in Path().iterdir()) == ["train.de.gz", "train.en.gz"]


@pytest.mark.parametrize(("args", "message"), MISTAKES)
def test_mistakes_write_nothing(args: tuple[str, ...], message: str) -> None:
    write("train.en.gz", ["a"] * 99)
    write("train.de.gz", ["b"] * 99)
    assert_refused(message, *args)


def test_repeated_lines_are_not_held_out() -> None:
    write("train.en.gz", ["a", "b"] * 100)
    write("train.de.gz", ["c", "d"] * 100)
    assert_refused("repeated, .* pass --dev and --test", "mine", *FILES)


def test_dropped_lines_are_not_held_out() -> None:
    write("train.en.gz", [f"{n}" for n in range(200)])
    write("train.de.gz", ["", *("word " * 251 for _ in range(190)), *"abcdefghi"])
    message = r"cleaning leaves 9 of 200 pairs \(dropped 190 too long, 1 empty\)"
    assert_refused(message, "mine", *FILES)


@pytest.mark.parametrize("suffix", ["jpn", "zho", "tha_Thai", "yue", "kor", "fra", "pt-BR", "ckb"])
def test_sentencepiece_is_the_default(suffix: str) -> None:
    """Only the limit on the ratio of lengths depends on the spaces of a language."""
    write("u.eng", [f"sentence {n} of the text" for n in range(200)])
    write(f"u.{suffix}", [f"這是第 {n} 句話" for n in range(200)])
    # Suffixes such as "txt" are also languages of three letters.
    options = ("--src-lang", "en", "--tgt-lang", suffix) if suffix in ("yue", "ckb") else ()
    new("mine", "--src", "u.eng", "--tgt", f"u.{suffix}", *options)
    recipe = load_recipe("./mine.toml")
    assert (recipe.corpus.tokenizer, recipe.subword.method) == ("none", "sentencepiece")
    is_spaced = suffix in ("kor", "fra", "pt-BR", "ckb")
    assert (recipe.corpus.max_ratio < 10) == is_spaced
    assert lines("mine.toml").count(f'tgt_lang = "{suffix}"') == 1


@pytest.mark.parametrize("text_of", [lambda _n: "over and over", lambda n: f"{n} " * 12])
def test_vocabulary_of_small_text(text_of: Callable[[int], str], tmp_path: Path) -> None:
    write("u.en", [text_of(n % 60) for n in range(300)])
    write("u.de", [text_of(n % 60) + f" {n}" for n in range(300)])
    write("d.en", ["a"])
    write("d.de", ["b"])
    sets = ("--dev", "d.en", "d.de", "--test", "d.en", "d.de")
    new("mine", "--src", "u.en", "--tgt", "u.de", "--plain", *sets)  # lines begin with numbers
    recipe = load_recipe("./mine.toml")
    pipeline = Pipeline(recipe, Settings(tmp_path / "runs", workers=1), "./mine.toml")
    prepared = PreparedCorpus(prepare.run(pipeline))
    n_tokens = recipe.subword.n_tokens  # type: ignore[union-attr]
    assert prepared.counts().vocabulary <= n_tokens
    characters = {*"".join(read_lines(Path("u.en")) + read_lines(Path("u.de")))}
    (n_epochs,) = re.findall(r"about (\d+) passes", Path("mine.toml").read_text(encoding="utf-8"))
    assert int(n_epochs) >= SIZES[0].n_epochs
    assert n_tokens >= SIZES[0].n_pieces + len(characters) + 256  # with the bytes


def test_bpe_as_in_the_paper() -> None:
    new("mine", *FILES, "--vocabulary", "bpe")
    recipe = load_recipe("./mine.toml")
    assert (recipe.corpus.tokenizer, recipe.subword.method) == ("moses", "bpe")
    assert (recipe.decoding.beam_size, recipe.decoding.length_penalty) == (4, 0.6)
    write("u.ja", ["これは本です"] * 200)
    write("u.en", ["this is a book"] * 200)
    with pytest.raises(UserError, match="--vocabulary bpe"):
        new("other", "--src", "u.en", "--tgt", "u.ja", "--vocabulary", "bpe")


def test_missing_file_is_named() -> None:
    with pytest.raises(UserError, match=r"no\.txt does not exist"):
        new("mine", "--src", "no.txt", "--tgt", "train.de.gz")


def test_one_column_is_refused(text: list[tuple[str, str]]) -> None:
    write("a.csv", ["en,de", *(",".join(pair) for pair in text)])
    with pytest.raises(UserError, match=r"has one column; pass a\.csv:SOURCE,TARGET"):
        new("mine", "--csv", "a.csv:en")


def test_few_pairs_are_warned_of(
    text: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    trials: list[Path] = []
    monkeypatch.setattr(progress, "warn", warnings.append)
    monkeypatch.setattr(command, "show_training_time", trials.append)
    write("a.tsv", ["\t".join(pair) for pair in text])
    new("mine", "--tsv", "a.tsv", *LANGS, "--no-trial")
    assert ["400 pairs" in warning for warning in warnings] == [True]
    assert trials == []
    new("other", "--tsv", "a.tsv", *LANGS)
    assert trials == [Path("other.toml")]


def test_parent_may_be_a_recipe(text: list[tuple[str, str]]) -> None:
    write("a.tsv", ["\t".join(pair) for pair in text])
    new("base", "--tsv", "a.tsv", *LANGS)
    options = ("--tsv", "a.tsv", *LANGS, "--from")
    with pytest.raises(UserError, match="runs has no artifact of `average`"):
        new("tuned", *options, "./base.toml")
    Path("theirs").mkdir()
    write("theirs/config.json", ["{}"])
    with pytest.raises(UserError, match=r"convert it first: nmtkit import theirs BUNDLE"):
        new("tuned", *options, "theirs")
    for other in ("nope", "./nope.toml", "a.tsv"):
        with pytest.raises(UserError, match=f"--from {other} is neither"):
            new("tuned", *options, other)
