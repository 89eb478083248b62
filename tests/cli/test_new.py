"""Recipes that `nmtkit new` writes for a user's own text."""

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nmtkit import cli
from nmtkit.cli import new as command
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.errors import UserError
from nmtkit.languages import Language
from nmtkit.machine import Machine
from nmtkit.recipe_file import load_recipe
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.table import Tsv
from nmtkit.stages import prepare
from nmtkit.stages.chain import Chain

WORDS = ["ein", "zwo", "drei", "vier", "fünf", "sechs", "acht"]


def pairs(n: int) -> list[tuple[str, str]]:
    generator = random.Random(1)
    words = [generator.choices(WORDS, k=generator.randint(4, 12)) for _ in range(n)]
    return [(" ".join(some), " ".join(reversed(some)) + " !") for some in words]


def write(path: str, lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines).encode()
    Path(path).write_bytes(gzip.compress(text) if path.endswith(".gz") else text)


@pytest.fixture(autouse=True)
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """A text of 400 pairs as train.en.gz and train.de.gz, in the current folder."""
    monkeypatch.chdir(tmp_path)
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


def test_a_recipe_and_the_sets_held_out_are_written_and_what_to_type_is_told(
    text: list[tuple[str, str]],
) -> None:
    told = new("mine", *FILES)
    assert "nmtkit run ./mine.toml" in told
    recipe = load_recipe("./mine.toml")
    assert recipe.name == "mine"
    assert (recipe.corpus.src_lang, recipe.corpus.tgt_lang) == Language.pair_of("en-de")
    held_out = [
        list(zip(lines(f"mine/{name}.en"), lines(f"mine/{name}.de"), strict=True))
        for name in ("dev", "test")
    ]
    assert [len(some) for some in held_out] == [20, 20]
    chosen = set(held_out[0]) | set(held_out[1])
    assert len(chosen) == 40
    assert chosen < set(text)
    assert held_out[0] == sorted(held_out[0], key=text.index)
    assert recipe.corpus.drop_held_out == (recipe.corpus.dev, recipe.test.sets[0])
    before = {path: path.read_bytes() for path in (Path("mine.toml"), *Path("mine").iterdir())}
    for path in before:
        path.unlink()
    Path("mine").rmdir()
    new("mine.toml", *FILES)
    assert before == {path: path.read_bytes() for path in before}


def test_nothing_is_overwritten() -> None:
    new("mine", *FILES)
    before = Path("mine.toml").read_bytes()
    with pytest.raises(UserError, match=r"mine\.toml exists already"):
        new("mine", *FILES)
    Path("mine.toml").unlink()
    with pytest.raises(UserError, match=r"^mine exists already"):
        new("mine", *FILES)
    Path("mine.toml").write_bytes(before)
    assert [path.name for path in sorted(Path().iterdir())] == [
        *("mine", "mine.toml", "train.de.gz", "train.en.gz")
    ]
    Path(".yours.nmtkit").mkdir()
    Path(".yours.nmtkit/dev.en").touch()
    with pytest.raises(UserError, match=r"^\.yours\.nmtkit, .* is not nmtkit's; move it away"):
        new("yours", *FILES)
    assert not Path(".yours.nmtkit/dev.en").stat().st_size


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--src-lang", "en\nx = 1", "--tgt-lang", "de"), "is not the code of a language; give"),
        (("--tgt-lang", "\udcff"), "is not the code of a language; give"),
        (("--dev", "a\udcff", "b"), "cannot stand in a recipe, which is plain text; rename it"),
    ],
)
def test_what_cannot_stand_in_a_recipe_is_refused(options: tuple[str, ...], says: str) -> None:
    with pytest.raises(UserError, match=says):
        new("mine", *FILES, *options)
    assert not Path("mine.toml").exists()


def test_sets_that_are_given_are_not_held_out() -> None:
    write("d.en", ["a"])
    write("d.de", ["b"])
    new("mine", *FILES, "--dev", "d.en", "d.de", "--test", "d.en", "d.de")
    recipe = load_recipe("./mine.toml")
    assert recipe.test.sets == (
        FilePair(name="test", src=str(Path("d.en").resolve()), tgt=str(Path("d.de").resolve())),
    )
    assert not Path("mine").exists()
    new("other", *FILES, "--dev", "d.en", "d.de")
    assert sorted(path.name for path in Path("other").iterdir()) == ["test.de", "test.en"]


@pytest.mark.parametrize("named", [True, False])
def test_of_a_tsv_the_columns_are_named_or_found_in_its_first_line(
    text: list[tuple[str, str]], named: bool
) -> None:
    rows = [f"{number}\t{tgt}\t{src}" for number, (src, tgt) in enumerate(text)]
    write("a.tsv", rows if named else ["id\tde\ten", *rows])
    columns = ("--columns", "id,de,en") if named else ()
    new("mine", "--tsv", "a.tsv", *columns, *LANGS)
    path = str(Path("a.tsv").resolve())
    assert load_recipe("./mine.toml").corpus.train == (
        Tsv(tsv=path, columns=("id", "de", "en"), header=not named),
    )
    assert set(zip(lines("mine/dev.en"), lines("mine/dev.de"), strict=True)) < set(text)


def test_two_columns_need_no_names_and_more_do(text: list[tuple[str, str]]) -> None:
    write("a.tsv", ["\t".join(pair) for pair in text])
    new("mine", "--tsv", "a.tsv", *LANGS)
    [train] = load_recipe("./mine.toml").corpus.train
    assert isinstance(train, Tsv)
    assert (train.columns, train.header) == (("en", "de"), False)
    write("b.tsv", ["1\t2\t3"])
    for columns, says in (
        ((), r"b\.tsv has 3 columns, and .* --columns id,en,de"),
        (("--columns", "en"), r"b\.tsv has 3 columns, and en are named; name all of them"),
        (("--columns", "en,de,\udcff"), r"'\\udcff' cannot stand in a recipe, which"),
    ):
        with pytest.raises(UserError, match=says):
            new("other", "--tsv", "b.tsv", *columns, *LANGS)


@pytest.mark.parametrize(
    ("src", "tgt", "langs"),
    [
        ("train.en", "train.de", ("en", "de")),
        ("a.b/OPUS.de-en.en.gz", "OPUS.de-en.de.gz", ("en", "de")),
        ("fr.txt", "pt-BR.txt", ("fr", "pt-BR")),
        ("eng_Latn.dev", "fin_Latn.dev", ("eng_Latn", "fin_Latn")),
        ("source.txt", "target.txt", None),
        ("a.src", "a.tgt", None),
        ("train.en", "valid.de", None),
        ("train.en", "de", None),
    ],
)
def test_languages_are_told_by_what_differs_in_the_names(
    src: str, tgt: str, langs: tuple[str, str] | None
) -> None:
    def told(*asked: str | None) -> tuple[str, ...]:
        return tuple(map(str, command.training_text(Path(src), Path(tgt), {}, None, *asked)[1]))

    if langs is None:
        with pytest.raises(UserError, match="add --src-lang and --tgt-lang"):
            told(None, None)
    else:
        assert told(None, None) == langs
    assert told("cs", "sk") == ("cs", "sk")


MISTAKES: list[tuple[tuple[str, ...], str]] = [
    (("mine",), "name one text: by --src and --tgt together"),
    (("mine", "--src", "a.en"), "name one text: by --src and --tgt together"),
    (("mine", *FILES, "--columns", "en,de"), "--columns is for"),
    (("mine", *FILES, "--tsv", "a.tsv"), "--src and --tgt"),
    (("mine", *FILES, "--src-lang", "de"), "both de"),
    (("mine", *FILES, "--src-lang", "../x"), "is not the code of a language; give"),
    (("a/b", *FILES), "'a/b' cannot name a recipe"),
    (("demo", *FILES), "a recipe demo comes with nmtkit"),
    (("demo.toml", *FILES), "a recipe demo comes with nmtkit"),
    (("mine", *FILES), "the text has 99 pairs; at least 100"),
    (("mine", "--src", "none.en", "--tgt", "none.de"), r"no file none\.en"),
    (("mine", "--src", "a.en", "--tgt", "./a.en", *LANGS), "are both"),
    (("mine", "--src", "\x7f.en", "--tgt", "\x7f.de"), "rename it"),
]


def refused(says: str, *args: str) -> None:
    with pytest.raises(UserError, match=says):
        new(*args)
    assert sorted(path.name for path in Path().iterdir()) == ["train.de.gz", "train.en.gz"]


@pytest.mark.parametrize(("args", "says"), MISTAKES)
def test_a_mistake_is_one_sentence_and_writes_nothing(args: tuple[str, ...], says: str) -> None:
    write("train.en.gz", ["a"] * 99)
    write("train.de.gz", ["b"] * 99)
    refused(says, *args)


def test_repeated_lines_are_not_held_out() -> None:
    write("train.en.gz", ["a", "b"] * 100)
    write("train.de.gz", ["c", "d"] * 100)
    refused("give one with --dev and --test", "mine", *FILES)


@pytest.mark.parametrize("suffix", ["jpn", "zho", "tha_Thai", "yue", "kor", "fra", "pt-BR", "ckb"])
def test_any_language_gets_sentencepieces_of_plain_text(suffix: str) -> None:
    """Whether it has spaces decides the bound of lengths alone."""
    write("u.eng", [f"sentence {n} of the text" for n in range(200)])
    write(f"u.{suffix}", [f"這是第 {n} 句話" for n in range(200)])
    new("mine", "--src", "u.eng", "--tgt", f"u.{suffix}")
    recipe = load_recipe("./mine.toml")
    assert (recipe.corpus.tokenizer, recipe.subword.method) == ("none", "sentencepiece")
    is_spaced = suffix in ("kor", "fra", "pt-BR", "ckb")
    assert (recipe.corpus.max_ratio < 10) == is_spaced
    assert lines("mine.toml").count(f'tgt_lang = "{suffix}"') == 1


@pytest.mark.parametrize("text_of", [lambda _n: "again and again", lambda n: f"{n} " * 12])
def test_a_vocabulary_fits_a_small_text(text_of: Callable[[int], str], tmp_path: Path) -> None:
    write("u.en", [text_of(n % 60) for n in range(300)])
    write("u.de", [text_of(n % 60) + f" {n}" for n in range(300)])
    write("d.en", ["a"])
    write("d.de", ["b"])
    sets = ("--dev", "d.en", "d.de", "--test", "d.en", "d.de")
    new("mine", "--src", "u.en", "--tgt", "u.de", *sets)
    recipe = load_recipe("./mine.toml")
    chain = Chain(recipe, Machine(tmp_path / "runs", workers=1), "./mine.toml")
    prepared = PreparedCorpus(prepare.run(chain))
    assert prepared.counts().vocabulary <= recipe.subword.n_tokens  # type: ignore[union-attr]


def test_the_papers_way_is_kept() -> None:
    new("mine", *FILES, "--vocabulary", "bpe")
    recipe = load_recipe("./mine.toml")
    assert (recipe.corpus.tokenizer, recipe.subword.method) == ("moses", "bpe")
    write("u.ja", ["これは本です"] * 200)
    write("u.en", ["this is a book"] * 200)
    with pytest.raises(UserError, match="--vocabulary bpe needs spaces between words"):
        new("other", "--src", "u.en", "--tgt", "u.ja", "--vocabulary", "bpe")
