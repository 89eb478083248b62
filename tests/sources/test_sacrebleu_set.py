"""Test sets by sacreBLEU's names: the same lines as sacreBLEU's, from verified downloads."""

import hashlib
import json
from copy import copy
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from packed import tarred
from sacrebleu.dataset import DATASETS
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.sources.download import Downloads
from nmtkit.sources.parallel import find_corpus
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language

SRC = ["A &amp; B", "two  spaces ", "Is it \u2028 one line?"]
REF_A = ["a &amp; b", " zwei", "eine"]
REF_B = ["a und b", "zwei", ""]


def plain(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def segments(lines: list[str]) -> str:
    return "".join(f'<seg id="{i}">{line}</seg>\n' for i, line in enumerate(lines, start=1))


def sgml(lines: list[str]) -> bytes:
    return f'<doc docid="d" origlang="en" genre="news">\n{segments(lines)}</doc>\n'.encode()


XML = f"""<dataset><doc origlang="en" id="d"><src lang="en">{segments(SRC)}</src>
<ref lang="de" translator="A">{segments(REF_A)}</ref>
<ref lang="de" translator="B">{segments(REF_B)}</ref></doc></dataset>""".encode()
TSV = "".join(f"1\t0\t{src}\t{ref}\n" for src, ref in zip(SRC, REF_A, strict=True)).encode()
# By test set: the members of its archives, or the content of other files.
CONTENTS: dict[str, tuple[dict[str, bytes] | bytes, ...]] = {
    "wmt22": ({"wmt22-news-systems-1.1/xml/wmttest2022.en-de.all.xml": XML},),
    "wmt20/tworefs": (
        {
            "sgm/newstest2020-ende-src.en.sgm": sgml(SRC),
            "sgm/newstest2020-ende-ref.de.sgm": sgml(REF_A),
            "sgm/newstestB2020-ende-ref.de.sgm": sgml(REF_B),
        },
    ),
    "wmt19/google/ar": ({"sgm/newstest2019-ende-src.en.sgm": sgml(SRC)}, plain(REF_B)),
    "mtnt2019": ({"MTNT2019/en-fr.final.tsv": TSV},),
}


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mirror of small archives; their hashes replace the published ones."""
    for name, contents in CONTENTS.items():
        bodies = []
        for content in contents:
            bodies.append(content if isinstance(content, bytes) else tarred(content, "gz"))
        for url, body in zip(DATASETS[name].data or (), bodies, strict=True):
            place = tmp_path / "mirror" / urlsplit(url).netloc / urlsplit(url).path.strip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(body)
        md5 = [hashlib.md5(body).hexdigest() for body in bodies]
        monkeypatch.setattr(DATASETS[name], "md5", md5)
    return tmp_path / "mirror"


def theirs(name: str, pair: str, mirror: Path, folder: Path) -> list[tuple[str, ...]]:
    """The rows that sacreBLEU downloads, unpacks and reads."""
    dataset: Any = copy(DATASETS[name])
    urls = map(urlsplit, dataset.data)
    dataset.data = [(mirror / f"{url.netloc}{url.path}").as_uri() for url in urls]
    dataset._outdir = str(folder)
    dataset._rawdir = str(folder / "raw")
    paths = [dataset.get_source_file(pair), *dataset.get_reference_files(pair)]
    texts = (Path(path).read_text(encoding="utf-8").split("\n")[:-1] for path in paths)
    return list(zip(*texts, strict=True))


@pytest.mark.filterwarnings("ignore:Python 3.14 will")
@pytest.mark.parametrize("name", CONTENTS)
def test_lines_equal_sacrebleu(name: str, mirror: Path, tmp_path: Path) -> None:
    pair = "en-fr" if name == "mtnt2019" else "en-de"
    downloads = Downloads(tmp_path / "downloads", mirror)
    rows = list(find_corpus(name, *Language.parse_pair(pair)).rows(downloads))
    assert rows == theirs(name, pair, mirror, tmp_path / "theirs")
    assert {len(row) for row in rows} == {3 if name == "wmt20/tworefs" else 2}
    with pytest.raises(UserError, match=rf"{name} has no de-is; it has .*{pair}"):
        find_corpus(name, *Language.parse_pair("de-is"))
    with pytest.raises(UserError, match="google/ar has no de-en; it has en-de"):
        find_corpus("wmt19/google/ar", *Language.parse_pair("de-en"))


def test_named_set_is_verified_and_scored(mirror: Path, tmp_path: Path) -> None:
    hyps = tmp_path / "hyps.de"
    hyps.write_bytes(plain(REF_A))
    command = ["score", str(hyps), "--test-set", "wmt22", "--lang", "en-de", "--json"]
    command += ["--runs-dir", str(tmp_path / "runs"), "--mirror", str(mirror)]
    ended = CliRunner().invoke(cli.app, command, catch_exceptions=False)
    (scores,) = json.loads(ended.stdout).values()
    assert (scores["test_set"]["name"], scores["test_set"]["lines"]) == ("wmt22", 3)
    (archive,) = mirror.rglob("v1.1.tar.gz")
    archive.write_bytes(archive.read_bytes()[:-1] + b"!")
    with pytest.raises(UserError, match=r"v1\.1\.tar\.gz has md5"):
        CliRunner().invoke(cli.app, command, catch_exceptions=False)
