"""A journal is believed where the same code wrote it and the files agree, and nowhere else."""

from pathlib import Path

import pytest

from nmtkit.store.journal import Journal
from nmtkit.store.manifests import TEMPORARY

CODE = {"text": "0" * 16}


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    folder = tmp_path / "draft.partial"
    folder.mkdir()
    return folder


def test_what_was_committed_is_told_to_the_next_run(draft: Path) -> None:
    first = Journal(draft / TEMPORARY, draft, CODE)
    assert first["text"] is None
    first.commit("text", {"chunks": 3, "names": ["ü\u2028"]})
    first.commit("learned", True)
    first.commit("text", {"chunks": 4, "names": []})
    (draft / "train.ids").write_bytes(b"ids")
    again = Journal(draft / TEMPORARY, draft, CODE)
    assert again["text"] == {"chunks": 4, "names": []}
    assert again["learned"] is True
    assert (draft / "train.ids").read_bytes() == b"ids"


def test_a_draft_of_other_code_is_emptied(draft: Path) -> None:
    Journal(draft / TEMPORARY, draft, CODE).commit("text", 1)
    (draft / "train.ids").write_bytes(b"of other making")
    assert Journal(draft / TEMPORARY, draft, {"text": "1" * 16})["text"] is None
    assert not (draft / "train.ids").exists()


# Files


def begun(draft: Path) -> Path:
    """A draft with a file that grew in two commits, and has more than that by now."""
    journal = Journal(draft / TEMPORARY, draft, CODE)
    text = journal.folder / "src"
    for number, content in enumerate((b"first\n", b"second\n", b"lost\n")):
        with text.open("ab") as file:
            file.write(content)
        if number < 2:
            journal.commit("text", number, text)
    return text


def test_what_is_behind_the_last_commit_of_a_file_is_known(draft: Path) -> None:
    text = begun(draft)
    journal = Journal(draft / TEMPORARY, draft, CODE)
    assert text.read_bytes() == b"first\nsecond\nlost\n"
    with journal.reopen(text) as file, journal.reopen(text.with_name("tgt")) as other:
        assert (file.tell(), other.tell()) == (len(b"first\nsecond\n"), 0)
    assert text.read_bytes() == b"first\nsecond\n"


def flipped(content: bytes, i: int) -> bytes:
    return content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :]


def test_a_flip_or_a_cut_of_any_committed_byte_empties_the_draft_and_is_said(
    draft: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n_bytes = len(b"first\nsecond\n")
    for i in range(n_bytes):
        for damaged in (flipped, lambda content, i: content[:i]):
            text = begun(draft)
            text.write_bytes(damaged(text.read_bytes(), i))
            assert Journal(draft / TEMPORARY, draft, CODE)["text"] is None
            assert not text.exists()
            said = " ".join(capsys.readouterr().err.split())
            assert f"{text} was changed since it was written; starting over" in said
    text = begun(draft)
    text.unlink()
    assert Journal(draft / TEMPORARY, draft, CODE)["text"] is None
    text = begun(draft)
    text.write_bytes(flipped(text.read_bytes(), n_bytes))  # was never committed
    assert Journal(draft / TEMPORARY, draft, CODE)["text"] == 1


def test_a_flip_or_a_cut_of_the_journal_empties_the_draft(draft: Path) -> None:
    begun(draft)
    path = draft / TEMPORARY / "journal.json"
    content = path.read_bytes()
    for i in range(0, len(content), 9):
        for damaged in (flipped(content, i), content[:i]):
            path.write_bytes(damaged)
            (draft / "train.ids").write_bytes(b"ids")
            assert Journal(draft / TEMPORARY, draft, CODE)["text"] is None
            assert not (draft / "train.ids").exists()
    path.write_bytes(content)
    assert Journal(draft / TEMPORARY, draft, CODE)["text"] is None  # src is gone
