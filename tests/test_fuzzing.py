"""Readers of external files: altered input is one error message or a result.

There must be no traceback, no hang and no large allocation. `make test-all` tries more examples.
"""

import shutil
import time
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from bundles import publish_bundle
from fairseq_models import LANGS, FairseqModel, save_checkpoint, write_dictionaries
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from models import tiny
from packed import tarred
from texts import DE, EN, rows_of

from nmtkit.config.loading import load_recipe, recipes_dir
from nmtkit.config.study import load_study
from nmtkit.corpus.bpe_subword import BpeSubword, read_codes
from nmtkit.corpus.ids import Ids, ids_writer, pack
from nmtkit.corpus.linearized import linearize, read_back
from nmtkit.decoding.bundle import open_bundle
from nmtkit.evaluation.bracket_f1 import compare_trees
from nmtkit.interchange.fairseq import read_dictionary, read_model
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.jsonl import Jsonl
from nmtkit.sources.table import Tsv
from nmtkit.sources.text_file import TextFile, read_lines
from nmtkit.sources.treebank import read_trees
from nmtkit.sources.xml import Tmx
from nmtkit.store.artifacts import differences
from nmtkit.store.tensors import load_tensors
from nmtkit.training.metrics import Metrics, read_metrics
from nmtkit.utils.errors import UserError

MAX_CPU_S = 20.0  # for a few kilobytes, which take milliseconds on an idle core
MAX_ALLOCATED = 200 * 2**20  # bytes; see SECURITY.md

# Bytes that often cause errors in readers.
TOKENS = [
    b"\0",
    b"\r",
    b"\n",
    b"\t",
    b" ",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\x1b[2J",
    "\u2028".encode(),
    "\u0085".encode(),
    "\u0663".encode(),
    "\U0001f600".encode(),
    b"(",
    b")",
    b"(" * 300,
    b")" * 300,
    b"( (",
    b"(X ",
    b"[" * 3_000,
    b"{" * 50,
    b'"',
    b"'",
    b"\\",
    b"0",
    b"-1",
    b"1e999",
    b"NaN",
    b"9" * 30,
    b"9" * 5_000,
    b"true",
    b"null",
    b"\\ud800",
    b"=",
    b",",
    b"&#0;",
    b"&#x110000;",
    b"&a;",
    b"<seg>",
    b"</seg>",
    b"<!--",
    b"]]>",
    b"<tu>",
    b"<!DOCTYPE a>",
    b"../",
    b"/",
    b"@@ ",
    b"</w>",
    b"#version: 0.2",
    b"\n" * 2_000,
]
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "replace", "cut", "drop", "repeat"]),
        st.floats(0, 1),
        st.sampled_from(TOKENS) | st.binary(min_size=1, max_size=9),
    ),
    min_size=1,
    max_size=5,
)


def edited(content: bytes, edits: Iterable[tuple[str, float, bytes]]) -> bytes:
    """Alter bytes at places that are fractions of their length."""
    for kind, place, token in edits:
        at = int(place * len(content))
        before = content[:at]
        after = content[at:]
        if kind == "insert":
            content = before + token + after
        elif kind == "replace":
            content = before + token + after[len(token) :]
        elif kind == "cut":
            content = before
        elif kind == "drop":
            content = before + after[len(token) :]
        else:
            content = before + after[:200] * 3 + after
    return content


@dataclass(frozen=True)
class Reader:
    """A function that reads the files of a folder, one of which is altered."""

    read: Callable[[Path], object]
    files: Mapping[str, bytes]
    altered: str


ARCHIVED = dict.fromkeys(("a/x.en", "a/x.de"), b"a line of text\n" * 20)


def _lines(name: str, member: str | None = None) -> Callable[[Path], object]:
    return lambda folder: list(read_lines(TextFile(folder / name, member)))


def _pairs(source: FilePair | Jsonl | Tsv | Tmx) -> Callable[[Path], object]:
    def read(folder: Path) -> object:
        paths = {key: str(folder / getattr(source, key)) for key in source.path_keys}
        return rows_of(source.model_copy(update=paths))

    return read


def _detected(kind: type[Jsonl | Tsv], name: str) -> Callable[[Path], object]:
    return lambda folder: rows_of(kind.from_file(str(folder / name), EN, DE, []))


JSONL = b'{"n": null, "text": {"en": "One", "de": "Eins"}}\n{"text": {"en": "Two", "de": ""}}\n' * 2
TABLE = "id\tEnglish (United States)\tDeutsch\t日本語\n1\tOne\tEins\tx\n".encode()
SGML = b"""<srcset setid="a" srclang="any">
<doc docid="1" sysid="ref"><p>
<seg id="1"> One &amp; two. </seg>
<seg id="2">Three.</seg>
</p></doc></srcset>
"""
TMX = b"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header/><body>
<tu><tuv xml:lang="en"><seg>One <ph>x</ph> &lt;</seg></tuv>
<tuv xml:lang="de"><seg>Eins</seg></tuv></tu>
<tu><tuv lang="en"><seg>Two</seg></tuv><tuv lang="de"><seg>Zwei</seg></tuv></tu>
</body></tmx>
"""
TREES = b"""( (S (NP-SBJ-1 (NNP Ms.) (NNP Haag)) (VP (VBZ plays)
 (NP (-NONE- *T*) (NNP Elianti))) (. .)) )
"""
CODES = b"#version: 0.2\na b\nab c</w>\nd e\n"
VOCABULARY = b"<pad>\t0\n<s>\t0\n</s>\t0\n<unk>\t0\na@@\t9\nb\t3\n"
METRICS = Metrics(1, 0, 2.5, 2.5, 0.5, False, 0.1, 5, 5, 0.1).line().encode() * 3


def _read_trees(folder: Path) -> None:
    for _, tree in read_trees(TextFile(folder / "x.mrg")):
        linearize(tree, "tags")


def _read_parser_output(folder: Path) -> None:
    tokens = (folder / "x").read_text(encoding="utf-8", errors="replace")
    read_back(tokens, ["Ms.", "Haag", "plays", "."])


def _compare_trees(folder: Path) -> None:
    tree = (folder / "x").read_text(encoding="utf-8", errors="replace")
    compare_trees(" ".join(TREES.decode().split())[2:-2], tree)


def _read_ids(folder: Path) -> None:
    ids = Ids.open(folder / "x.src")
    for sentence in np.split(ids.ids, ids.offsets[1:-1]):
        sentence.sum()


def _tensors(folder: Path) -> None:
    for tensor in load_tensors(folder / "model.safetensors").values():
        tensor.sum()


def _readers(folder: Path) -> dict[str, Reader]:
    """All readers, with files that they can read."""
    demo = (recipes_dir() / "demo.toml").read_bytes()
    study = (recipes_dir() / "studies" / "table-3-multi30k.toml").read_bytes()
    with ids_writer(folder / "x.src", 300) as writer:
        writer.append(pack([[5, 6, 2], [2], [299, 2]], 300))
    ids = {path.name: path.read_bytes() for path in folder.iterdir()}
    bundle = publish_bundle(folder / "b", tiny())
    bundled = {path.name: path.read_bytes() for path in bundle.iterdir()}
    model = FairseqModel(48)
    checkpoints = {
        kind: save_checkpoint(
            folder / "m.pt", model.state(), model.settings(), is_zip=kind == "zip"
        ).read_bytes()
        for kind in ("zip", "legacy")
    }
    write_dictionaries(folder, ["a@@", "b"])
    dictionary = (folder / "dict.en.txt").read_bytes()
    tsv = Tsv(tsv="x.tsv", columns=("en", "de"))
    pair = FilePair(src="x.en", tgt="x.de")
    return {
        "recipe": Reader(lambda f: load_recipe(str(f / "x.toml")), {"x.toml": demo}, "x.toml"),
        "study": Reader(lambda f: load_study(str(f / "x.toml")), {"x.toml": study}, "x.toml"),
        "tar": Reader(_lines("x.tar", "a/x.de"), {"x.tar": tarred(ARCHIVED)}, "x.tar"),
        "sgml": Reader(_lines("x.sgm"), {"x.sgm": SGML}, "x.sgm"),
        "tmx": Reader(_pairs(Tmx(tmx="x.tmx")), {"x.tmx": TMX}, "x.tmx"),
        "tsv": Reader(_pairs(tsv), {"x.tsv": b"One\tEins\nTwo\tZwei\n"}, "x.tsv"),
        "jsonl": Reader(_pairs(Jsonl(jsonl="x.jsonl")), {"x.jsonl": JSONL}, "x.jsonl"),
        "jsonl, detected": Reader(_detected(Jsonl, "x.jsonl"), {"x.jsonl": JSONL}, "x.jsonl"),
        "tsv, detected": Reader(_detected(Tsv, "x.tsv"), {"x.tsv": TABLE}, "x.tsv"),
        "text": Reader(_pairs(pair), {"x.en": b"One\nTwo\n", "x.de": b"Eins\nZwei\n"}, "x.de"),
        "trees": Reader(_read_trees, {"x.mrg": TREES * 2}, "x.mrg"),
        "parser": Reader(_read_parser_output, {"x": b"(S (NP NNP NNP )NP (VP VBZ )VP . )S"}, "x"),
        "brackets": Reader(_compare_trees, {"x": TREES[2:-4]}, "x"),
        **{
            f"subwords, {name}": Reader(
                BpeSubword.load, {"codes.bpe": CODES, "vocabulary.tsv": VOCABULARY}, name
            )
            for name in ("codes.bpe", "vocabulary.tsv")
        },
        **{f"ids, {name}": Reader(_read_ids, ids, name) for name in ids},
        **{f"bundle, {name}": Reader(open_bundle, bundled, name) for name in bundled},
        "difference": Reader(lambda f: list(differences(f)), bundled, "manifest.json"),
        "safetensors": Reader(
            _tensors, {"model.safetensors": bundled["model.safetensors"]}, "model.safetensors"
        ),
        **{
            f"fairseq, {kind}": Reader(
                lambda f: read_model(f / "m.pt", LANGS), {"m.pt": content}, "m.pt"
            )
            for kind, content in checkpoints.items()
        },
        "fairseq, dictionary": Reader(lambda f: read_dictionary(f / "x"), {"x": dictionary}, "x"),
        "fairseq, merges": Reader(
            lambda f: read_codes(f / "x"), {"x": b"a b 5\nab c</w> 3\n"}, "x"
        ),
        "metrics": Reader(lambda f: read_metrics(f / "x"), {"x": METRICS}, "x"),
    }


NAMES = [
    "recipe",
    "study",
    "tar",
    "sgml",
    "tmx",
    "tsv",
    "text",
    "jsonl",
    "jsonl, detected",
    "tsv, detected",
    "trees",
    "parser",
    "brackets",
    "subwords, codes.bpe",
    "subwords, vocabulary.tsv",
    "ids, x.src.ids",
    "ids, x.src.offsets",
    "ids, x.src.json",
    "bundle, manifest.json",
    "bundle, model.json",
    "bundle, decoding.json",
    "bundle, tokenization.json",
    "bundle, codes.bpe",
    "bundle, vocabulary.tsv",
    "bundle, model.safetensors",
    "difference",
    "safetensors",
    "fairseq, zip",
    "fairseq, legacy",
    "fairseq, dictionary",
    "fairseq, merges",
    "metrics",
]


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    return _readers(tmp_path_factory.mktemp("samples"))


def write(folder: Path, reader: Reader, content: bytes | None = None) -> None:
    """Write the files of a reader; `content` replaces that of the altered one."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, original in reader.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(original if name != reader.altered or content is None else content)


def check(folder: Path, reader: Reader, content: bytes) -> None:
    """Read altered content: a result or an error message, with little time and memory."""
    write(folder, reader, content)
    begin = time.process_time()
    tracemalloc.start()
    try:
        reader.read(folder)
    except UserError as error:
        message = str(error)
        assert message
        assert message.isprintable()
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < MAX_ALLOCATED
    assert time.process_time() - begin < MAX_CPU_S


def test_every_reader_is_listed(readers: dict[str, Reader], tmp_path: Path) -> None:
    assert sorted(readers) == sorted(NAMES)
    for name, reader in readers.items():
        write(tmp_path / "files", reader)
        assert reader.altered in reader.files, name
        reader.read(tmp_path / "files")


@pytest.mark.parametrize("name", NAMES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS)
@example(edits=[("insert", 0.3, b"9" * 5_000)])  # more digits than Python converts
def test_altered_input_has_no_traceback(
    readers: dict[str, Reader], tmp_path: Path, name: str, edits: list[tuple[str, float, bytes]]
) -> None:
    reader = readers[name]
    check(tmp_path / "files", reader, edited(reader.files[reader.altered], edits))
