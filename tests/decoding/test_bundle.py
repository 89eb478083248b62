"""Bundles translate raw text, and other folders are refused.

Bundles come from other people: a hostile one is one error message, or works.
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
from nmtkit.decoding.text_translator import MAX_SUBWORDS, TextTranslator, max_subwords
from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.model.weights import MODEL, WEIGHTS
from nmtkit.store.artifacts import publish_directory
from nmtkit.store.manifests import MANIFEST
from nmtkit.store.records import file_sha256, sealed, write_json
from nmtkit.utils.errors import UserError

LINES = ["The well-known cat sat.", "", "A dog looked, and then it ran away.", "  ", "cat!"]
CONFIG = tiny(n_layers=1, n_heads=2, d_k=6, d_v=5, max_positions=16, vocabulary_multiple=8)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_bundle(tmp_path_factory.mktemp("original") / "b", CONFIG, seed=4)


@pytest.fixture
def bundle(original: Path, tmp_path: Path) -> Path:
    """A copy of the original, which tests change."""
    return Path(shutil.copytree(original, tmp_path / "bundle"))


def translator(folder: Path) -> TextTranslator:
    bundle = open_bundle(folder)
    return bundle.translator(TorchEngine.load([bundle], torch.device("cpu")))


def translate(folder: Path) -> list[str]:
    return [translation.text for translation in translator(folder).translate(LINES)]


def test_bundle_files(bundle: Path) -> None:
    names = {path.name for path in bundle.iterdir()}
    subwords = {"codes.bpe", "vocabulary.tsv"}
    described = {MODEL, TOKENIZATION, "decoding.json", MANIFEST}
    assert names == {WEIGHTS, *described, *subwords}


def test_long_line_is_split_and_joined(bundle: Path) -> None:
    opened = translator(bundle)
    assert opened.max_subwords == CONFIG.max_positions == 16
    pieces = ["The cat sat. Who looked?", "A cat ran! A dog sat."]
    separate = opened.translate(pieces)
    assert [translation.n_pieces for translation in separate] == [1, 1]
    joined, other = opened.translate([" ".join(pieces), "cat!"])
    assert other.text == opened.translate(["cat!"])[0].text
    assert joined.text == " ".join(translation.text for translation in separate)
    assert (joined.n_pieces, other.n_pieces) == (2, 1)
    assert joined.n_tokens == sum(translation.n_tokens for translation in separate)
    for value in ("score", "log_prob"):
        total = sum(getattr(translation, value) for translation in separate)
        assert getattr(joined, value) == pytest.approx(total, abs=1e-3)


def test_max_subwords_has_a_limit() -> None:
    assert max_subwords(CONFIG.model_copy(update={"max_positions": 10**9})) == MAX_SUBWORDS < 2_000


def test_other_folders_are_refused(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a finished artifact"):
        open_bundle(tmp_path)
    draft = tmp_path / "draft"
    other = tmp_path / "other"
    for missing in (WEIGHTS, MODEL, TOKENIZATION):
        shutil.copytree(bundle, draft)
        (draft / missing).unlink()
        (draft / MANIFEST).unlink()
        publish_directory(draft, other, {"kind": "train"})
        with pytest.raises(UserError, match=f"other .*{missing}"):
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
    """Limit memory, so that a mistake raises MemoryError and does not fill the machine."""
    with open("/proc/self/status", encoding="utf-8") as status:  # noqa: PTH123
        (size,) = (int(line.split()[1]) for line in status if line.startswith("VmSize:"))
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size * 1024 + 2**30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def curried(damage: Callable[..., None]) -> Callable[..., Callable[[Path], None]]:
    """Let a function that damages a bundle take its other arguments first."""
    return lambda *arguments, **options: lambda bundle: damage(bundle, *arguments, **options)


@curried
def put(bundle: Path, name: str, content: bytes) -> None:
    """Write a file into a bundle, and its hash into the manifest."""
    (bundle / name).write_bytes(content)
    if name != MANIFEST:
        relist(bundle, name, name)


def relist(bundle: Path, name: str, file: str) -> None:
    """Write `name` into the manifest with the size and the hash of `file`."""
    path = bundle / file
    entry = {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
    manifest_with(lambda manifest: manifest["files"].update({name: entry}))(bundle)


@curried
def listing(bundle: Path, name: str) -> None:
    """Write one more name into the manifest, with the size and the hash of that file."""
    (bundle / "sub").mkdir()
    (bundle.parent / "secret").write_bytes(b"root:x:0:0")
    relist(bundle, name, "../secret")


def unlisted(name: str) -> Callable[[Path], None]:
    """Remove a file from the manifest."""
    return manifest_with(lambda manifest: manifest["files"].pop(name))


@curried
def manifest_with(bundle: Path, edit: Callable[[Any], object]) -> None:
    """Edit the manifest, and update its own hash."""
    manifest = json.loads((bundle / MANIFEST).read_bytes())
    del manifest["sha256"]
    edit(manifest)
    write_json(bundle / MANIFEST, sealed(manifest))


@curried
def linked(bundle: Path, name: str, target: str) -> None:
    """Replace a file by a link."""
    (bundle / name).unlink(missing_ok=True)
    (bundle / name).symlink_to(target)


def linked_to_itself(bundle: Path) -> None:
    (bundle / "codes.bpe").rename(bundle.parent / "codes")
    (bundle / "codes.bpe").symlink_to("../codes")


@curried
def pipe(bundle: Path, name: str) -> None:
    """Replace a file by a pipe without a writer."""
    (bundle / name).unlink()
    os.mkfifo(bundle / name)


def replaced_by_folder(bundle: Path) -> None:
    (bundle / "codes.bpe").unlink()
    (bundle / "codes.bpe").mkdir()


@curried
def model_with(bundle: Path, **config: object) -> None:
    """Change values of model.json; `n_rows` is not part of its config."""
    described = json.loads((bundle / MODEL).read_bytes())
    described["n_rows"] = config.pop("n_rows", described["n_rows"])
    described["config"].update(config)
    put(MODEL, json.dumps(described).encode())(bundle)


@curried
def weights_with(bundle: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Edit the weights."""
    weights = load_file(bundle / WEIGHTS)
    edit(weights)
    put(WEIGHTS, save(weights))(bundle)


def cast(dtype: torch.dtype) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda weights: weights.update({name: w.to(dtype) for name, w in weights.items()})


def fill_with_nan(weights: dict[str, torch.Tensor]) -> None:
    for weight in weights.values():
        weight.fill_(torch.nan)


def empty_tensors(n: int) -> bytes:
    """A safetensors file that is only a header."""
    tensor = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"weight{number}": tensor for number in range(n)}).encode()
    return len(header).to_bytes(8, "little") + header


def vocabulary(*rows: str) -> bytes:
    lines = [*(f"{special}\t0" for special in SPECIALS), *rows]
    return "".join(f"{line}\n" for line in lines).encode()


def damaged_json(name: str) -> dict[str, tuple[Callable[[Path], None], str | None]]:
    """Ways to damage any JSON file, and their messages."""
    return {
        f"{name}: {problem}": (put(name, content), rf"{name} .*{message}")
        for problem, content, message in (
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
# The function that damages a bundle, and the error when it is opened or used; None: it works.
HOSTILE: dict[str, tuple[Callable[[Path], None], str | None]] = {
    **damaged_json(MANIFEST),
    **damaged_json(MODEL),
    "name: upwards": (listing("../secret"), OUTSIDE),
    "name: absolute": (listing("/etc/passwd"), OUTSIDE),
    "name: empty": (listing(""), OUTSIDE),
    "name: NUL": (listing("a\0"), OUTSIDE),
    "name: escape sequence": (listing("\x1b[2J"), OUTSIDE),
    "name: too long": (listing("a" * 5_000), "at most 255 characters"),
    "link to a device": (linked("codes.bpe", "/dev/zero"), "is a link or not a regular file"),
    "link to its own content": (linked_to_itself, "is a link or not a regular file"),
    "pipe": (pipe("codes.bpe"), "is a link or not a regular file"),
    "folder": (replaced_by_folder, "is a link or not a regular file"),
    "manifest is a device": (linked(MANIFEST, "/dev/zero"), "not a finished artifact"),
    "manifest is a pipe": (pipe(MANIFEST), "not a finished artifact"),
    "stray device": (linked("sentencepiece.model", "/dev/zero"), None),
    "no vocabulary listed": (unlisted("vocabulary.tsv"), "published without vocabulary.tsv"),
    "unknown key": (manifest_with(lambda m: m.update(more=1)), r"\['more'\] = 1: Extra"),
    "n_layers": (model_with(n_layers=10_000), "does not match"),
    "n_rows": (model_with(n_rows=10**9), "does not match"),
    "n_heads of many digits": (model_with(n_heads=10**4_000), "less than or equal to"),
    "other shapes, as many weights": (model_with(d_k=5, d_v=6), "(does not match|.* weights)"),
    "sinusoids": (model_with(max_positions=2**24), None),
    "learned positions": (model_with(positions="learned", max_positions=2**24), "does not match"),
    "vocabulary_multiple": (model_with(vocabulary_multiple=2**24), None),
    "unknown key of the model": (model_with(colour=1), "Unknown key"),
    "F16": (weights_with(cast(torch.float16)), "'F16'.*expected .'F32'"),
    "missing weight": (weights_with(lambda w: w.pop(min(w))), "is missing, expected"),
    "NaN": (weights_with(fill_with_nan), "NaN instead"),
    "header too long": (put(WEIGHTS, b"\xff" * 8 + b"{}"), "safetensors"),
    "no header": (put(WEIGHTS, b""), "safetensors"),
    "many tensors": (put(WEIGHTS, empty_tensors(200_000)), "a header of .* needs at most"),
    "large vocabulary": (
        put("vocabulary.tsv", vocabulary(*(f"{n}\t0" for n in range(5_000)))),
        "has 5,004 tokens",
    ),
    "count of many digits": (
        put("vocabulary.tsv", vocabulary("a\t" + "9" * 5_000)),
        "line 5: expected a piece and a count",
    ),
    "large file of codes": (put("codes.bpe", b"a b\n" * 2**22), "more than 8,388,608 bytes"),
    "sentencepiece model of noise": (
        put("sentencepiece.model", bytes(range(256)) * 9),
        "not a sentencepiece model",
    ),
}


def error_message(bundle: Path) -> str | None:
    """The error when a bundle is opened and used; None if it works."""
    try:
        texts = translate(bundle)
    except UserError as error:
        message = str(error)
    else:
        assert len(texts) == len(LINES)
        return None
    assert message.isprintable()
    assert len(message) < 2_000
    return message


@pytest.mark.usefixtures("_bounded")
@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_bundle_is_one_sentence(bundle: Path, name: str) -> None:
    damage, expected = HOSTILE[name]
    damage(bundle)
    message = error_message(bundle)
    if expected is None:
        assert message is None
    else:
        assert re.search(expected, str(message)), message
    assert "passwd" not in str(message).replace("/etc/passwd", "")
