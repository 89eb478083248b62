"""Public corpora by name in `nmtkit new`."""

import json
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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
from nmtkit.sources import parallel
from nmtkit.sources.catalog import data_dir
from nmtkit.sources.file_pair import FilePair
from nmtkit.stages import prepare
from nmtkit.stages.pipeline import Pipeline
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language

DE, EN = map(Language.of, ("de", "en"))
TED = "opus:TED2020/v1"
N_PAIRS = 300
LANGS = ("--src-lang", "de", "--tgt-lang", "en")


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
    sets = ("--dev-set", "demo-dev", "--test-set", "demo-test")
    for side in ("--src-lang=de", "--tgt-lang=en"):
        Path("mine.toml").unlink(missing_ok=True)
        assert "translates from de to en" in new("--corpus", "demo-train", side, *sets)
    with pytest.raises(UserError, match=r"devtest has .*de-en, .*en-fr.*; pass --src-lang"):
        new("--corpus", "flores200-devtest")
    with pytest.raises(UserError, match="trees-demo-train has en-tree"):
        new("--corpus", "trees-demo-train")


def test_missing_files_are_listed_before_text_is_read() -> None:
    with pytest.raises(UserError, match=r"no .*OPUS-None.*missing too: .*wmt20/.*test\.tgz"):
        new("--corpus", "opus:None/v1", "--test-set", "wmt20", *LANGS)
    # The test set is missing, and the training text is damaged.
    Path("mirror/object.pouta.csc.fi/OPUS-TED2020/v1/moses/de-en.txt.zip").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"damaged|not a complete archive"):
        new("--corpus", TED, *LANGS)


def test_sets_are_opened_before_text_is_read(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"the mirror has no .*wmt20"):
        new("--corpus", TED, "--test-set", "wmt20", *LANGS)
    assert "read the text" not in capfd.readouterr().err


def test_repeated_text_is_refused() -> None:
    for lang in ("en", "de"):
        content = (data_dir() / "demo" / f"dev.{lang}").read_bytes()
        Path(f"own.{lang}").write_bytes(content)
    own = ("--src", "own.de", "--tgt", "own.en")
    for options in (("--corpus", TED, "--corpus", TED), (*own, *own)):
        with pytest.raises(UserError, match="is passed twice as training text"):
            new(*options, *LANGS)
    dev = ("--dev", "own.de", "own.en")
    for with_set in (("--corpus", TED, "--test-set", TED), (*own, *dev)):
        with pytest.raises(UserError, match="is also training text"):
            new(*with_set, *LANGS)
    assert not Path("mine.toml").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--corpus", "demo-trian"], r"did you mean 'demo-train'\?"),
        (["--corpus", "demo"], r"did you mean 'demo-train' or 'demo-dev' or 'demo-test'\?"),
        (["--corpus", "demo-train,demo-dev"], "unknown corpus 'demo-train,demo-dev'"),
        (["--corpus", "TED2020/v1"], r"did you mean 'opus:TED2020/v1' or 'hub:TED2020/v1'\?"),
        (["--corpus", "OPUS:TED2020/v1"], r"did you mean 'opus:TED2020/v1'\?"),
        (["--corpus", "mirror"], "mirror is a file or folder of yours; pass it as"),
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


ANSWER = {
    "corpora": [
        {"corpus": "TED2020", "version": "v1", "alignment_pairs": 300},
        {"corpus": "Books", "version": "v1", "alignment_pairs": None},
        {"corpus": "\x1b[31m", "version": "v1", "alignment_pairs": 5},
        {"corpus": "NLLB", "version": "v2", "alignment_pairs": 400},
    ]
}


def test_opus_lists_corpora_of_languages() -> None:
    with serving(json.dumps(ANSWER).encode()) as api:
        expected = "for de-en, OPUS has opus:NLLB/v2, opus:TED2020/v1, opus:Books/v1"
        with pytest.raises(UserError, match=expected):
            public_corpus("opus:", DE, EN, api)
        with pytest.raises(UserError, match="did you mean 'opus:TED2020/v1'"):
            public_corpus("opus:TED2020", DE, EN, api)
    with (
        serving(b'{"corpora": []}') as api,
        pytest.raises(UserError, match=r"none for de-en; it writes languages as de, pt_BR"),
    ):
        public_corpus("opus:", DE, EN, api)
    for body in (b"<html>", b"{}", b'{"corpora": [3]}'):
        with serving(body) as api, pytest.raises(UserError, match=r"opus\.nlpl\.eu lists them"):
            public_corpus("opus:", DE, EN, api)


def test_corpus_that_opus_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive is not found, and the API of OPUS lists similar names."""

    class Missing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Missing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(parallel, "OPUS_HOST", host)
        for name, hint in (("TED2020/v3", "TED2020/v1"), ("nllb/v1", "NLLB/v2")):
            message = f"no archive of opus:{name} for de-en .*'opus:{hint}'.*opus:Books/v1"
            with serving(json.dumps(ANSWER).encode()) as api:
                monkeypatch.setattr(command, "OPUS_API", api)
                arguments = ["new", "x", f"--corpus=opus:{name}", *LANGS]
                with pytest.raises(UserError, match=message):
                    cli.app(arguments, standalone_mode=False)
        server.shutdown()
    assert not Path("x.toml").exists()
