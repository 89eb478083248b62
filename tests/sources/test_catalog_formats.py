"""A corpus in any format is one entry of the catalog, which is read in both directions."""

import hashlib
import json
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from texts import DE, EN

from nmtkit.sources import catalog
from nmtkit.sources.catalog import load_catalog
from nmtkit.sources.download import Downloads
from nmtkit.sources.parallel import find_corpus
from nmtkit.sources.source import Row
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import TREE, Language

PAIRS = [(f"Sentence {i}, & more", f"Satz {i} < mehr") for i in range(12)]
BYTE_ORDER_MARK = "\ufeff"


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Site:
    """A folder that is served on this machine, and a catalog of its files."""

    def __init__(self, folder: Path, address: str) -> None:
        self.public = folder / "public"
        self.public.mkdir()
        self.downloads = Downloads(folder / "downloads")
        self._catalog = folder / "catalog.toml"
        self._address = address
        self._files: list[str] = []

    def add(self, name: str, content: str | bytes) -> None:
        """Publish a file, as the download of the same name without its suffix."""
        path = self.public / name
        path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        self._files += [
            f"[files.{name.split('.', maxsplit=1)[0]}]",
            f'urls = ["{self._address}/{name}"]',
        ]
        self._files += [f'sha256 = "{sha256}"']

    def add_text(self, entry: str, pair: str = "en-de", more: str = "") -> None:
        """Write the catalog, with one corpus."""
        corpus = ["[corpora.own]", 'licence = "any"', more, f"[corpora.own.texts.{pair}]", entry]
        self._catalog.write_text("\n".join([*self._files, *corpus]) + "\n", encoding="utf-8")
        catalog._read.cache_clear()

    def rows(self, src: Language = EN, tgt: Language = DE) -> list[Row]:
        return list(find_corpus("own", src, tgt).rows(self.downloads))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    monkeypatch.setattr(catalog, "data_dir", lambda: tmp_path)
    handler = partial(Handler, directory=str(tmp_path / "public"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield Site(tmp_path, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    catalog._read.cache_clear()


def add_tsv(site: Site) -> str:
    lines = ["id\tenglish\tgerman", *(f"{i}\t{en}\t{de}" for i, (en, de) in enumerate(PAIRS))]
    site.add("own.tsv", BYTE_ORDER_MARK + "\n".join(lines) + "\n")
    return 'tsv = "own"\ncolumns = ["id", "en", "de"]\nheader = true'


def add_csv(site: Site) -> str:
    site.add("own.csv", "".join(f'"{de}";"{en}"\n' for en, de in PAIRS))
    return 'csv = "own"\ncolumns = ["de", "en"]\ndelimiter = ";"'


def add_tmx(site: Site) -> str:
    units = []
    for pair in PAIRS:
        sides = []
        for lang, text in zip(("en-GB", "de"), pair, strict=True):
            escaped = text.replace("&", "&amp;").replace("<", "&lt;")
            sides.append(f'<tuv xml:lang="{lang}"><seg>{escaped}</seg></tuv>')
        units.append(f"<tu>{''.join(sides)}</tu>\n")
    site.add("own.tmx", f'<tmx version="1.4"><body>\n{"".join(units)}</body></tmx>\n')
    return 'tmx = "own"'


def add_jsonl(site: Site) -> str:
    lines = [json.dumps({"translation": {"de": de, "en": en}}) for en, de in PAIRS]
    site.add("own.jsonl", BYTE_ORDER_MARK + "\n".join(lines) + "\n")
    return 'jsonl = "own"'


def add_jsonl_columns(site: Site) -> str:
    lines = [json.dumps({"title": "t", "ziel": de, "quelle": en}) for en, de in PAIRS]
    site.add("own.jsonl", "\n".join(lines) + "\n")
    return 'jsonl = "own"\ncolumns = ["quelle", "ziel"]'


def add_parquet(site: Site) -> str:
    columns = dict(zip(("en", "de"), map(list, zip(*PAIRS, strict=True)), strict=True))
    file = BytesIO()
    parquet.write_table(pa.table(columns), file)
    site.add("own.parquet", file.getvalue())
    return 'dataset = "own"'


def add_opus_zip(site: Site) -> str:
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for lang, column in zip(("en", "de"), zip(*PAIRS, strict=True), strict=True):
            archive.writestr(f"Own.de-en.{lang}", "".join(f"{line}\n" for line in column))
    site.add("own.zip", file.getvalue())
    return 'opus_zip = "own"'


def add_files(site: Site) -> str:
    site.add("english.txt", "".join(f"{en}\n" for en, _ in PAIRS))
    site.add("german.txt", "".join(f"{de}\n" for _, de in PAIRS))
    return 'src = "english"\ntgt = "german"'


def add_members(site: Site) -> str:
    file = BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for lang, column in zip(("en", "de"), zip(*PAIRS, strict=True), strict=True):
            content = "".join(f"{line}\n" for line in column).encode("utf-8")
            member = tarfile.TarInfo(f"set/own.{lang}")
            member.size = len(content)
            archive.addfile(member, BytesIO(content))
    site.add("own.tgz", file.getvalue())
    return 'src = "own:set/own.en"\ntgt = "own:set/own.de"'


FORMATS = [
    add_tsv,
    add_csv,
    add_tmx,
    add_jsonl,
    add_jsonl_columns,
    add_parquet,
    add_opus_zip,
    add_files,
    add_members,
]


@pytest.mark.parametrize("add", FORMATS)
def test_entry_is_read_in_both_directions(add: Callable[[Site], str], site: Site) -> None:
    site.add_text(add(site), more="n_pairs = { en-de = 12 }")
    assert site.rows() == PAIRS
    assert site.rows(DE, EN) == [(de, en) for en, de in PAIRS]
    corpus, opposite = (find_corpus("own", *langs) for langs in ((EN, DE), (DE, EN)))
    assert corpus.n_pairs == opposite.n_pairs == len(PAIRS)
    assert set(corpus.downloads) == set(opposite.downloads) == set(load_catalog().files.values())


@pytest.mark.parametrize("add", FORMATS)
def test_lines_of_any_format_are_selected(add: Callable[[Site], str], site: Site) -> None:
    chosen = [PAIRS[i] for i in (2, 3, 4, 0)]
    sha1 = []
    for lang, lines in zip(("en", "de"), zip(*chosen, strict=True), strict=True):
        text = "".join(f"{line}\n" for line in lines).encode("utf-8")
        sha1.append(f'{lang} = "{hashlib.sha1(text, usedforsecurity=False).hexdigest()}"')
    entry = f'{add(site)}\nlines = "3-5, 1"\nsha1 = {{ {", ".join(sha1)} }}'
    site.add_text(entry)
    assert site.rows() == chosen
    assert site.rows(DE, EN) == [(de, en) for en, de in chosen]
    identity = find_corpus("own", EN, DE).identity()
    assert identity != find_corpus("own", DE, EN).identity()

    site.add_text(entry.replace("3-5", "2-4"))
    with pytest.raises(UserError, match="4 selected lines of own in en have the SHA-1"):
        site.rows()


def test_marks_of_plain_text_are_kept(site: Site) -> None:
    """The scripts of Moses read them as characters; other formats have none in their text."""
    site.add("english.txt", f"{BYTE_ORDER_MARK}one\n")
    site.add("german.txt", "eins\n")
    site.add_text('src = "english"\ntgt = "german"')
    assert site.rows() == [(f"{BYTE_ORDER_MARK}one", "eins")]


def test_treebank_in_an_archive_has_sections(site: Site) -> None:
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for section in ("00", "01", "02"):
            archive.writestr(f"wsj_{section}01.mrg", f"((S (NN word{section})))\n")
    site.add("own.zip", file.getvalue())
    site.add_text('treebank = "own"\nsections = ["01-02"]', "en-tree")
    assert [words for words, _ in site.rows(EN, TREE)] == ["word01", "word02"]
    with pytest.raises(UserError, match="own has no tree-en; it has en-tree"):
        site.rows(TREE, EN)


def test_opposite_direction_of_references(site: Site) -> None:
    for name, word in (("english", "one"), ("first", "eins"), ("second", "eine")):
        site.add(f"{name}.txt", f"{word}\n")
    site.add_text('src = "english"\ntgt = ["first", "second"]')
    assert site.rows() == [("one", "eins", "eine")]
    assert site.rows(DE, EN) == [("eins", "one")]
    site.add_text('src = "english"')
    assert site.rows() == [("one",)]
    with pytest.raises(UserError, match="english has no translation"):
        site.rows(DE, EN)


@pytest.mark.parametrize(
    ("entry", "pair", "reason"),
    [
        ('tsv = "own"\ncolumns = ["en", "fr"]', "en-de", "does not have both en and de"),
        ('tsv = "own"\ncolums = ["en", "de"]', "en-de", r"did you mean 'columns'"),
        ('tsv = "own"\ncolumns = ["en", "de"]', "en-tree", "tree"),
        ('treebank = "own"', "en-de", "en-de cannot be trees"),
        ('src = "own"\ntgt = "own"', "en-de", "lists own twice"),
        ('jsonl = "owns"', "en-de", r"'owns' \(did you mean 'own'\?\), which is neither in"),
        ('jsonl = "own"\nlines = "1"', "en-de", "sha1"),
        (f'jsonl = "own"\nlines = "1"\nsha1 = {{ en = "{"0" * 40}" }}', "en-de", "keys en and de"),
        ('jsonl = "own"\nweight = 2.0', "en-de", "weight has no effect in the catalog"),
        ('jsonl = "own"\nname = "mine"', "en-de", "name has no effect in the catalog"),
    ],
)
def test_mistakes_are_one_sentence(entry: str, pair: str, reason: str, site: Site) -> None:
    site.add("own.jsonl", "{}\n")
    site.add_text(entry, pair)
    with pytest.raises(UserError, match=reason) as error:
        find_corpus("own", EN, DE)
    assert "\n" not in str(error.value)
