"""Public corpora by name in `nmtkit new`."""

import json
import zipfile
from pathlib import Path

import pytest
from system.server import serving
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.cli import new as command
from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.new.corpus_names import public_corpus
from nmtkit.sources.catalog import data_dir
from nmtkit.sources.file_pair import FilePair
from nmtkit.stages import prepare
from nmtkit.stages.pipeline import Pipeline
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language

DE, EN = map(Language.of, ("de", "en"))
TED = "opus:TED2020/v1"
N_PAIRS = 300


@pytest.fixture(autouse=True)
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror with an archive of OPUS, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "show_training_time", lambda _: None)  # takes seconds
    folder = Path("mirror/object.pouta.csc.fi/OPUS-TED2020/v1/moses")
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "de-en.txt.zip", "w") as archive:
        for lang in ("de", "en"):
            lines = (data_dir() / "demo" / f"train.{lang}").read_bytes().split(b"\n")[:N_PAIRS]
            archive.writestr(f"TED2020.de-en.{lang}", b"\n".join(lines) + b"\n")


def new(*args: str) -> str:
    ended = CliRunner().invoke(cli.app, ["new", "mine", "--mirror", "mirror", *args])
    if ended.exception is not None:
        raise ended.exception
    return ended.stdout


def test_opus_corpus_is_read_and_held_out() -> None:
    printed = new("--corpus", TED, "--src-lang", "de", "--tgt-lang", "en")
    assert "opus-TED2020-v1, read as a zip archive" in printed
    recipe = load_recipe("./mine.toml")
    assert recipe.corpus.train == (TED,)
    settings = Settings(Path("runs"), device="cpu", workers=1, mirror=Path("mirror"))
    counts = PreparedCorpus(prepare.run(Pipeline(recipe, settings, "mine"))).counts().train
    assert counts[0]["pairs"] == N_PAIRS
    assert counts[0]["dropped"]["held_out"] >= 2 * N_PAIRS // 20


def test_corpora_mix_with_files_and_sets() -> None:
    for lang in ("en", "de"):
        content = (data_dir() / "demo" / f"dev.{lang}").read_bytes()
        Path(f"own.{lang}").write_bytes(content)
    sets = ("--dev-set", "demo-dev", "--test-set", "wmt20")
    with pytest.raises(UserError, match=r"the mirror has no .*wmt20/translation-task/test\.tgz"):
        new("--corpus", TED, "--src", "own.en", "--tgt", "own.de", *sets)
    sets = ("--dev-set", "demo-dev", "--test-set", "demo-test")
    new("--corpus", TED, "--src", "own.en", "--tgt", "own.de", *sets, "--reverse")
    recipe = load_recipe("./mine.toml")
    assert (recipe.corpus.src_lang, recipe.corpus.tgt_lang) == (DE, EN)
    own, ted = recipe.corpus.train
    assert ted == TED
    assert isinstance(own, FilePair)
    assert (Path(own.src).name, recipe.corpus.dev) == ("own.de", "demo-dev")
    assert recipe.test.sets == ("demo-test",)
    assert recipe.corpus.drop_held_out == ("demo-dev", "demo-test")


def test_catalog_fixes_languages() -> None:
    assert "translates from en to de" in new("--corpus", "demo-train", "--dev-set", "demo-dev")
    with pytest.raises(UserError, match=f"the languages of {TED} are not known"):
        new("--corpus", TED)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--corpus", "demo-trian"], r"did you mean 'demo-train'\?"),
        (["--corpus", "opus:"], "'opus:' does not name a corpus of OPUS"),
        (["--corpus", "opus:Nope/v1"], "the mirror has no .*OPUS-Nope"),
        (["--corpus", "hub:x"], "pass hub:OWNER/NAME"),
        (["--corpus", TED, "--test-set", "wmt99"], "unknown test set 'wmt99'"),
        (["--corpus", TED, "--test", "a", "b", "--test-set", "wmt20"], "omit one of them"),
    ],
)
def test_unknown_names_are_refused(options: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        new(*options, "--src-lang", "de", "--tgt-lang", "en")
    assert not Path("mine.toml").exists()


def test_opus_lists_corpora_of_languages() -> None:
    answer = {
        "corpora": [
            {"corpus": "TED2020", "version": "v1", "alignment_pairs": 300},
            {"corpus": "Books", "version": "v1", "alignment_pairs": None},
            {"corpus": "\x1b[31m", "version": "v1", "alignment_pairs": 5},
            {"corpus": "NLLB", "version": "v2", "alignment_pairs": 400},
        ]
    }
    with serving(json.dumps(answer).encode()) as api:
        expected = "for de-en, OPUS has opus:NLLB/v2, opus:TED2020/v1, opus:Books/v1"
        with pytest.raises(UserError, match=expected):
            public_corpus("opus:", DE, EN, api)
        with pytest.raises(UserError, match="did you mean 'opus:TED2020/v1'"):
            public_corpus("opus:TED2020", DE, EN, api)
    for body in (b"<html>", b"{}", b'{"corpora": [3]}'):
        with serving(body) as api, pytest.raises(UserError, match=r"opus\.nlpl\.eu lists them"):
            public_corpus("opus:", DE, EN, api)
