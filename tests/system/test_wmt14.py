"""The whole of `nmtkit prepare wmt14-en-de-base`, from a server with WMT14's archives in small."""

import hashlib
import html
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from packed import tarred
from sacremoses import MosesTokenizer

import nmtkit as package
from nmtkit.corpus.prepared import SIDES, PreparedCorpus
from nmtkit.corpus.store import Ids
from nmtkit.corpus.subword import load_subword
from nmtkit.store import open_directory
from system.command import Outcome, artifact, contents, done, outcome, start
from system.server import Server, serving

RECIPE = "wmt14-en-de-base"
PROJECT = Path(package.__file__).resolve().parents[1]
N_TRAIN = 1_500  # pairs of each corpus


@dataclass(frozen=True)
class Text:
    """What the archives are made of: the two sides of each corpus, German second."""

    train: list[tuple[str, str]]
    dev: list[tuple[str, str]]
    test: list[tuple[str, str]]


def read_pairs(src: Path, tgt: Path) -> list[tuple[str, str]]:
    sides = []
    for path in (src, tgt):
        with path.open(encoding="utf-8", newline="\n") as file:
            sides.append(file.read().removesuffix("\n").split("\n"))
    return list(zip(*sides, strict=True))


@pytest.fixture
def text() -> Text:
    demo = PROJECT / "data" / "demo"
    return Text(*(read_pairs(demo / f"{s}.en", demo / f"{s}.de") for s in ("train", "dev", "test")))


def plain(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def sgml(lines: list[str], kind: str) -> bytes:
    """A test set as WMT ships it."""
    segments = "".join(
        f'<seg id="{i}">{html.escape(line, quote=False)}</seg>\n' for i, line in enumerate(lines, 1)
    )
    head = f'<{kind} setid="newstest2014" srclang="any">\n<doc docid="1" genre="news">\n<p>\n'
    return f"{head}{segments}</p>\n</doc>\n</{kind}>\n".encode()


def archives(text: Text) -> dict[str, bytes]:
    """What the four archives of the recipe hold, by the path of their URLs; others' text beside."""

    def sides(stem: str, number: int) -> dict[str, bytes]:
        pairs = text.train[number * N_TRAIN : (number + 1) * N_TRAIN]
        return {
            f"{stem}.cs-en.cs": plain(["Dobrý den."] * 7),
            f"{stem}.cs-en.en": plain(["Good day."] * 7),
            f"{stem}.de-en.de": plain([de for _, de in pairs]),
            f"{stem}.de-en.en": plain([en for en, _ in pairs]),
            f"{stem}.fr-en.fr": plain(["Bonjour."] * 5),
        }

    en, de = ([pair[side] for pair in text.test] for side in (0, 1))
    dev = {
        "dev/newstest2013.de": plain([pair[1] for pair in text.dev]),
        "dev/newstest2013.en": plain([pair[0] for pair in text.dev]),
        "dev/newstest2014-deen-ref.en.sgm": sgml(en, "refset"),
        "dev/newstest2014-deen-src.de.sgm": sgml(de, "srcset"),
    }
    return {
        "/wmt13/training-parallel-europarl-v7.tgz": tarred(sides("training/europarl-v7", 0), "gz"),
        "/wmt13/training-parallel-commoncrawl.tgz": tarred(
            {**sides("commoncrawl", 1), "commoncrawl.de-en.annotation": b"de\ten\t1\n"}, "gz"
        ),
        "/wmt14/training-parallel-nc-v9.tgz": tarred(sides("training/news-commentary-v9", 2), "gz"),
        "/wmt19/translation-task/dev.tgz": tarred(dev, "gz"),
    }


@pytest.fixture
def server(text: Text) -> Iterator[Server]:
    with serving(archives(text), cuts=True) as server:
        yield server


def install(folder: Path, server: Server) -> None:
    """Put nmtkit into `folder`, with a catalog that has this server's files and their hashes."""
    for name in ("nmtkit", "pipelines"):
        shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    catalog = (PROJECT / "data" / "catalog.toml").read_text(encoding="utf-8")
    for path, body in server.bodies.items():
        entry = re.compile(
            rf'url = "http://[^/]+{re.escape(path)}"\nn_bytes = [\d_]+\nsha256 = "[0-9a-f]+"'
        )
        ours = (
            f'url = "http://127.0.0.1:{server.server_port}{path}"\nn_bytes = {len(body)}\n'
            f'sha256 = "{hashlib.sha256(body).hexdigest()}"'
        )
        catalog, n_entries = entry.subn(ours, catalog)
        assert n_entries == 1, path
    (folder / "data").mkdir()
    (folder / "data" / "catalog.toml").write_text(catalog, encoding="utf-8", newline="\n")
    shutil.copytree(PROJECT / "data" / "demo", folder / "data" / "demo")


def prepare(folder: Path, workers: int) -> Outcome:
    # A process of its own, for the package that lies in the folder.
    return outcome(start(folder, "prepare", RECIPE, "--workers", str(workers)))


def test_wmt14_is_downloaded_verified_cleaned_and_split(
    tmp_path: Path, text: Text, server: Server
) -> None:
    install(tmp_path, server)
    done(prepare(tmp_path, workers=2))
    prepared = artifact(tmp_path, "prepare")

    # Each file came once, in two pieces.
    starts = sorted((path, asked) for path, asked in server.requests)
    halves = [f"bytes={len(body) // 2}-" for body in server.bodies.values()]
    assert starts == sorted(
        (path, asked)
        for path, rest in zip(server.bodies, halves, strict=True)
        for asked in ("bytes=0-", rest)
    )
    # What is scored is what was in the archives, every line of it.
    corpus = PreparedCorpus(open_directory(prepared))
    assert list(zip(*map(corpus.dev_lines, SIDES), strict=True)) == text.dev

    # The ids say what the original tools make of the training text.
    counts = corpus.counts().train
    names = [count.corpus for count in counts]
    assert names == ["europarl-v7", "commoncrawl", "news-commentary-v9"]
    assert [count.pairs for count in counts] == [N_TRAIN] * 3
    subword = load_subword(open_directory(prepared))
    tokenizers = MosesTokenizer("en"), MosesTokenizer("de")
    expected = []
    for pair in text.train[: 3 * N_TRAIN]:
        tokens = [
            " ".join(tokenizer.tokenize(line, return_str=True).split())
            for tokenizer, line in zip(tokenizers, pair, strict=True)
        ]
        lengths = [len(side.split()) for side in tokens]
        if min(lengths) > 0 and max(lengths) <= 80 and max(lengths) <= 9 * min(lengths):
            expected.append(tokens)
    src, tgt = (Ids.open(prepared / f"train.{side}") for side in ("src", "tgt"))
    assert len(src) == len(tgt) == len(expected) == sum(c.kept for c in counts)
    for i, tokens in enumerate(expected):
        assert [subword.decode(src[i].tolist()), subword.decode(tgt[i].tolist())] == tokens

    # Again, with another number of processes, from the downloads alone.
    before = contents(prepared)
    shutil.rmtree(prepared)
    asked = len(server.requests)
    done(prepare(tmp_path, workers=1))
    assert contents(artifact(tmp_path, "prepare")) == before
    assert len(server.requests) == asked
