"""Files of token ids: they are read as written, and damaged files are refused."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.corpus.ids import Ids, id_dtype, ids_writer, pack
from nmtkit.utils.errors import UserError

SENTENCES = [[5, 6, 7, 2], [2], [9, 8, 2]]


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    with ids_writer(tmp_path / "train.src", 11) as writer:
        writer.append(pack(SENTENCES, 11))
    return tmp_path / "train.src"


def file(prefix: Path, suffix: str) -> Path:
    return prefix.parent / f"{prefix.name}.{suffix}"


@given(
    n_tokens=st.sampled_from([256, 2**16, 2**16 + 1, 2**20]),
    chunks=st.lists(st.lists(st.lists(st.floats(0, 1, exclude_max=True), max_size=5), max_size=4)),
)
def test_sentences_survive_the_disk(
    tmp_path_factory: pytest.TempPathFactory, n_tokens: int, chunks: list[list[list[float]]]
) -> None:
    prefix = tmp_path_factory.mktemp("ids") / "dev.tgt"
    flat: list[list[int]] = []
    with ids_writer(prefix, n_tokens) as writer:
        for chunk in chunks:
            sentences = [[int(x * n_tokens) for x in sentence] for sentence in chunk]
            writer.append(pack(sentences, n_tokens))
            flat += sentences
    ids = Ids.open(prefix)
    assert len(ids) == len(flat)
    read = [sentence.tolist() for sentence in np.split(ids.ids, ids.offsets[1:-1])]
    assert read[: len(ids)] == flat
    assert ids.lengths.tolist() == [len(sentence) for sentence in flat]
    assert ids.ids.dtype == id_dtype(n_tokens)


@pytest.mark.parametrize("suffix", ["ids", "offsets", "json"])
@pytest.mark.parametrize("kept", [0, 1, 7])
def test_cut_file_is_refused(prefix: Path, suffix: str, kept: int) -> None:
    path = file(prefix, suffix)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match=rf"train\.src\.{suffix} is damaged"):
        Ids.open(prefix)


@pytest.mark.parametrize(
    "header",
    [
        "[]",
        "\x00\x01",
        '{"dtype": "O", "n_sentences": 3, "n_ids": 8}',
        '{"dtype": "<u2", "n_sentences": -1, "n_ids": 8}',
        '{"dtype": "<u2", "n_sentences": 1e18, "n_ids": 8}',
        '{"dtype": "<u2", "n_sentences": 1000000000000000000, "n_ids": 8}',
    ],
)
def test_invalid_header_is_refused(prefix: Path, header: str) -> None:
    file(prefix, "json").write_text(header, encoding="utf-8")
    with pytest.raises(UserError, match="is damaged"):
        Ids.open(prefix)


@given(
    sentences=st.lists(st.lists(st.integers(0, 10), max_size=5), max_size=12),
    cut=st.integers(0, 12),
    lost=st.integers(0, 12),
)
def test_writer_continues_after_flush(
    tmp_path_factory: pytest.TempPathFactory, sentences: list[list[int]], cut: int, lost: int
) -> None:
    """Sentences that a killed writer appended after its last flush are replaced."""
    folder = tmp_path_factory.mktemp("store")
    with ids_writer(folder / "reference", 11) as writer:
        writer.append(pack(sentences, 11))
    with suppress(KeyboardInterrupt), ids_writer(folder / "train.src", 11) as killed:
        killed.append(pack(sentences[:cut], 11))
        at = killed.flush()
        killed.append(pack(sentences[cut : cut + lost], 11))
        raise KeyboardInterrupt
    with ids_writer(folder / "train.src", 11, **at) as writer:
        writer.append(pack(sentences[cut:], 11))
    for suffix in ("ids", "offsets", "json"):
        assert (folder / f"train.src.{suffix}").read_bytes() == (
            folder / f"reference.{suffix}"
        ).read_bytes()
