"""A bundle is enough to translate raw text, and nothing else is taken for one.

Bundles come from strangers: each hostile one ends in one sentence, or works.
"""

import json
import os
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from bundles import publish_bundle
from models import tiny
from safetensors.torch import load_file, save
from system.command import flip_byte

from nmtkit.corpus.moses import TOKENIZATION
from nmtkit.corpus.special_tokens import SPECIALS
from nmtkit.decoding.bundle import open_bundle
from nmtkit.decoding.lines import MAX_SUBWORDS, TextTranslator, max_subwords
from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.model.description import MODEL
from nmtkit.model.weights import WEIGHTS
from nmtkit.store.artifacts import publish_directory
from nmtkit.store.manifests import MANIFEST
from nmtkit.store.records import sealed, sha256_of, write_json
from nmtkit.utils.errors import UserError

LINES = ["The well-known cat sat.", "", "A dog looked, and then it ran away.", "  ", "cat!"]
CONFIG = tiny(n_layers=1, n_heads=2, d_k=6, d_v=5, max_positions=16, vocabulary_multiple=8)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_bundle(tmp_path_factory.mktemp("original") / "b", CONFIG, seed=4)


@pytest.fixture
def bundle(original: Path, tmp_path: Path) -> Path:
    """A copy of it, to be spoilt."""
    return Path(shutil.copytree(original, tmp_path / "bundle"))


def translator(folder: Path) -> TextTranslator:
    bundle = open_bundle(folder)
    return bundle.translator(TorchEngine.load([bundle], torch.device("cpu")))


def translate(folder: Path) -> list[str]:
    return [translation.text for translation in translator(folder).translate(LINES)]


def test_bundle_holds_what_translating_needs_and_no_data(bundle: Path) -> None:
    names = {path.name for path in bundle.iterdir()}
    subwords = {"codes.bpe", "vocabulary.tsv"}
    described = {MODEL, TOKENIZATION, "decoding.json", MANIFEST}
    assert names == {WEIGHTS, *described, *subwords}


def test_long_line_is_its_pieces_translated_one_by_one_and_joined(bundle: Path) -> None:
    opened = translator(bundle)
    assert opened.max_subwords == CONFIG.max_positions == 16
    pieces = ["The cat sat. Who looked?", "A cat ran! A dog sat."]
    alone = opened.translate(pieces)
    assert [translation.n_pieces for translation in alone] == [1, 1]
    joined, other = opened.translate([" ".join(pieces), "cat!"])
    assert other.text == opened.translate(["cat!"])[0].text
    assert joined.text == " ".join(translation.text for translation in alone)
    assert (joined.n_pieces, other.n_pieces) == (2, 1)
    assert joined.n_tokens == sum(translation.n_tokens for translation in alone)
    for value in ("score", "log_prob"):
        total = sum(getattr(translation, value) for translation in alone)
        assert getattr(joined, value) == pytest.approx(total, abs=1e-3)


def test_bundle_that_claims_to_read_lines_of_any_length_is_not_believed() -> None:
    assert max_subwords(CONFIG.model_copy(update={"max_positions": 10**9})) == MAX_SUBWORDS < 2_000


def test_folder_that_is_no_bundle_is_refused(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a finished artifact"):
        open_bundle(tmp_path)
    draft, other = tmp_path / "draft", tmp_path / "other"
    for missing, says in {
        WEIGHTS: "is not a bundle: it has no model.safetensors",
        MODEL: "is not a bundle: it has no model.json",
        TOKENIZATION: "was published without tokenization.json",
    }.items():
        shutil.copytree(bundle, draft)
        (draft / missing).unlink()
        (draft / MANIFEST).unlink()
        publish_directory(draft, other, {"kind": "train"})
        with pytest.raises(UserError, match=f"other {says}"):
            open_bundle(other)
        shutil.rmtree(other)


@pytest.mark.parametrize("name", [WEIGHTS, MODEL, TOKENIZATION, "vocabulary.tsv", "codes.bpe"])
def test_altered_file_is_refused(bundle: Path, name: str) -> None:
    flip_byte(bundle / name)
    with pytest.raises(UserError, match=f"{name} was altered"):
        translator(bundle)


# Hostile


@pytest.fixture
def _bounded() -> Iterator[None]:
    """Let a mistake end in a MemoryError, and not with the machine."""
    with open("/proc/self/status", encoding="utf-8") as status:  # noqa: PTH123
        (size,) = (int(line.split()[1]) for line in status if line.startswith("VmSize:"))
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size * 1024 + 2**30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def spoiling(spoil: Callable[..., None]) -> Callable[..., Callable[[Path], None]]:
    """Let a function that spoils a bundle take its other arguments first."""
    return lambda *how, **more: lambda bundle: spoil(bundle, *how, **more)


@spoiling
def put(bundle: Path, name: str, content: bytes) -> None:
    """Put a file into a bundle, listed as it is, if it is not the list itself."""
    (bundle / name).write_bytes(content)
    if name != MANIFEST:
        relist(bundle, name, name)


def relist(bundle: Path, name: str, file: str) -> None:
    """List `name` with the size and the hash that `file` has."""
    path = bundle / file
    entry = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    manifest_with(lambda manifest: manifest["files"].update({name: entry}))(bundle)


@spoiling
def listing(bundle: Path, name: str) -> None:
    """List one more name, with the size and the hash of what is there."""
    (bundle / "sub").mkdir()
    (bundle.parent / "secret").write_bytes(b"root:x:0:0")
    relist(bundle, name, "../secret")


def unlisted(name: str) -> Callable[[Path], None]:
    """Have the manifest forget a file."""
    return manifest_with(lambda manifest: manifest["files"].pop(name))


@spoiling
def manifest_with(bundle: Path, edit: Callable[[Any], object]) -> None:
    """Edit what the manifest says, and let its own hash be right."""
    manifest = json.loads((bundle / MANIFEST).read_bytes())
    del manifest["sha256"]
    edit(manifest)
    write_json(bundle / MANIFEST, sealed(manifest))


@spoiling
def linked(bundle: Path, name: str, target: str) -> None:
    """Have a link in the place of a file."""
    (bundle / name).unlink(missing_ok=True)
    (bundle / name).symlink_to(target)


def linked_to_itself(bundle: Path) -> None:
    (bundle / "codes.bpe").rename(bundle.parent / "codes")
    (bundle / "codes.bpe").symlink_to("../codes")


@spoiling
def pipe(bundle: Path, name: str) -> None:
    """Have a pipe that nobody writes to in the place of a file."""
    (bundle / name).unlink()
    os.mkfifo(bundle / name)


def folder_in_the_place_of_a_file(bundle: Path) -> None:
    (bundle / "codes.bpe").unlink()
    (bundle / "codes.bpe").mkdir()


@spoiling
def model_with(bundle: Path, **config: object) -> None:
    """Have model.json tell of another model; `n_rows` stands beside its config."""
    described = json.loads((bundle / MODEL).read_bytes())
    described["n_rows"] = config.pop("n_rows", described["n_rows"])
    described["config"].update(config)
    put(MODEL, json.dumps(described).encode())(bundle)


@spoiling
def weights_with(bundle: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Edit the weights."""
    weights = load_file(bundle / WEIGHTS)
    edit(weights)
    put(WEIGHTS, save(weights))(bundle)


def cast(dtype: torch.dtype) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda weights: weights.update({name: w.to(dtype) for name, w in weights.items()})


def empty_tensors(n: int) -> bytes:
    """A safetensors file that is only a header."""
    tensor = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"weight{number}": tensor for number in range(n)}).encode()
    return len(header).to_bytes(8, "little") + header


def vocabulary(*rows: str) -> bytes:
    lines = [*(f"{special}\t0" for special in SPECIALS), *rows]
    return "".join(f"{line}\n" for line in lines).encode()


def read_of_json(name: str) -> dict[str, tuple[Callable[[Path], None], str | None]]:
    """What any JSON file may hold."""
    return {
        f"{name}: {what}": (put(name, content), rf"{name} .*{says}")
        for what, content, says in (
            ("deep", b"[" * 100_000, "recursion limit exceeded"),
            ("digits", b'{"format": ' + b"9" * 5_000 + b"}", "number out of range"),
            ("NaN", b'{"format": 2, "config": NaN, "src": NaN, "files": NaN}', "is damaged"),
            ("not UTF-8", b'{"format": 2, "config": "\xff"}', "invalid unicode code point"),
            ("large", b" " * 2**21 + b"{}", "more than 2,097,152 bytes"),
            ("a list", b"[]", "is damaged"),
            ("empty", b"", "is damaged"),
            ("no keys", b"{}", "is damaged"),
            ("lone surrogate", b'{"\\ud800": 1}', "is damaged"),
        )
    }


OUTSIDE = "does not name a file inside the folder"
# What is done to a bundle, and the sentence that opening or using it ends in; None: it works.
HOSTILE: dict[str, tuple[Callable[[Path], None], str | None]] = {
    **read_of_json(MANIFEST),
    **read_of_json(MODEL),
    "name: upwards": (listing("../secret"), OUTSIDE),
    "name: absolute": (listing("/etc/passwd"), OUTSIDE),
    "name: empty": (listing(""), OUTSIDE),
    "name: NUL": (listing("a\0"), OUTSIDE),
    "name: escape sequence": (listing("\x1b[2J"), OUTSIDE),
    "name: too long": (listing("a" * 5_000), "at most 255 characters"),
    "link to a device": (linked("codes.bpe", "/dev/zero"), "is a link or not a regular file"),
    "link to its own content": (linked_to_itself, "is a link or not a regular file"),
    "pipe": (pipe("codes.bpe"), "is a link or not a regular file"),
    "folder": (folder_in_the_place_of_a_file, "is a link or not a regular file"),
    "manifest is a device": (linked(MANIFEST, "/dev/zero"), "not a finished artifact"),
    "manifest is a pipe": (pipe(MANIFEST), "not a finished artifact"),
    "stray device": (linked("sentencepiece.model", "/dev/zero"), None),
    "no vocabulary listed": (unlisted("vocabulary.tsv"), "published without vocabulary.tsv"),
    "unknown key": (manifest_with(lambda m: m.update(more=1)), r"\['more'\] = 1: Extra"),
    "n_layers": (model_with(n_layers=10_000), "another model"),
    "n_rows": (model_with(n_rows=10**9), "another model"),
    "n_heads of many digits": (model_with(n_heads=10**4_000), "less than or equal to"),
    "other shapes, as many weights": (model_with(d_k=5, d_v=6), "holds (another|.* weights)"),
    "sinusoids": (model_with(max_positions=2**24), None),
    "learned positions": (model_with(positions="learned", max_positions=2**24), "another model"),
    "vocabulary_multiple": (model_with(vocabulary_multiple=2**24), None),
    "unknown key of the model": (model_with(colour=1), "Unknown key"),
    "F16": (weights_with(cast(torch.float16)), "'F16'.*expected .'F32'"),
    "missing weight": (weights_with(lambda w: w.pop(min(w))), "is missing, expected"),
    "NaN": (weights_with(lambda w: [each.fill_(torch.nan) for each in w.values()]), "NaN instead"),
    "header too long": (put(WEIGHTS, b"\xff" * 8 + b"{}"), "safetensors"),
    "no header": (put(WEIGHTS, b""), "safetensors"),
    "many tensors": (put(WEIGHTS, empty_tensors(200_000)), "a header of .* needs at most"),
    "large vocabulary": (
        put("vocabulary.tsv", vocabulary(*(f"{n}\t0" for n in range(5_000)))),
        "has 5,004 tokens",
    ),
    "count of many digits": (
        put("vocabulary.tsv", vocabulary("a\t" + "9" * 5_000)),
        "line 5: .* is not a piece and a count",
    ),
    "large file of codes": (put("codes.bpe", b"a b\n" * 2**22), "more than 8,388,608 bytes"),
    "sentencepiece model of noise": (
        put("sentencepiece.model", bytes(range(256)) * 9),
        "not a sentencepiece model",
    ),
}


def ending(bundle: Path) -> str | None:
    """The sentence that a bundle ends in; None if it works."""
    try:
        texts = translate(bundle)
    except UserError as error:
        said = str(error)
    else:
        assert len(texts) == len(LINES)
        return None
    assert said.isprintable()
    assert len(said) < 2_000
    return said


@pytest.mark.usefixtures("_bounded")
@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_bundle_ends_in_one_sentence_or_works(bundle: Path, name: str) -> None:
    spoil, says = HOSTILE[name]
    spoil(bundle)
    said = ending(bundle)
    if says is None:
        assert said is None
    else:
        assert re.search(says, str(said)), said
    assert "passwd" not in str(said).replace("/etc/passwd", "")
