"""A journal is used only if the same code wrote it and the files agree with it."""

from pathlib import Path

import pytest
from system.kills import BeforeOperation, attempt

from nmtkit.store.journal import Journal
from nmtkit.store.manifests import TEMPORARY

CODE = {"text": "0" * 16}


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    folder = tmp_path / "draft.partial"
    folder.mkdir()
    return folder


def test_commits_are_kept(draft: Path) -> None:
    first = Journal(draft / TEMPORARY, draft, CODE)
    assert first["text"] is None
    first.commit("text", {"chunks": 3, "names": ["ü\u2028"]})
    first.commit("learned", True)
    first.commit("text", {"chunks": 4, "names": []})
    (draft / "train.ids").write_bytes(b"ids")
    second = Journal(draft / TEMPORARY, draft, CODE)
    assert second["text"] == {"chunks": 4, "names": []}
    assert second["learned"] is True
    assert (draft / "train.ids").read_bytes() == b"ids"


def test_draft_of_other_code_is_emptied(draft: Path) -> None:
    Journal(draft / TEMPORARY, draft, CODE).commit("text", 1)
    (draft / "train.ids").write_bytes(b"of another version")
    assert Journal(draft / TEMPORARY, draft, {"text": "1" * 16})["text"] is None
    assert not (draft / "train.ids").exists()


# Files


def write_file(draft: Path) -> Path:
    """Write a file with two commits and a line that is not committed."""
    journal = Journal(draft / TEMPORARY, draft, CODE)
    text = journal.folder / "src"
    for number, content in enumerate((b"first\n", b"second\n", b"lost\n")):
        with text.open("ab") as file:
            file.write(content)
        if number < 2:
            journal.commit("text", number, text)
    return text


def test_reopen_drops_uncommitted_bytes(draft: Path) -> None:
    text = write_file(draft)
    journal = Journal(draft / TEMPORARY, draft, CODE)
    assert text.read_bytes() == b"first\nsecond\nlost\n"
    with journal.reopen(text) as file, journal.reopen(text.with_name("tgt")) as other:
        assert (file.tell(), other.tell()) == (len(b"first\nsecond\n"), 0)
    assert text.read_bytes() == b"first\nsecond\n"


def flip(content: bytes, i: int) -> bytes:
    return content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :]


def test_damaged_file_empties_draft(draft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n_bytes = len(b"first\nsecond\n")
    for i in range(n_bytes):
        for damage in (flip, lambda content, i: content[:i]):
            text = write_file(draft)
            text.write_bytes(damage(text.read_bytes(), i))
            assert Journal(draft / TEMPORARY, draft, CODE)["text"] is None
            assert not text.exists()
            message = " ".join(capsys.readouterr().err.split())
            assert f"{text} was changed" in message
    text = write_file(draft)
    text.unlink()
    assert Journal(draft / TEMPORARY, draft, CODE)["text"] is None
    text = write_file(draft)
    text.write_bytes(flip(text.read_bytes(), n_bytes))  # a byte that was not committed
    assert Journal(draft / TEMPORARY, draft, CODE)["text"] == 1


def test_damaged_journal_empties_draft(draft: Path) -> None:
    write_file(draft)
    path = draft / TEMPORARY / "journal.json"
    content = path.read_bytes()
    for i in range(0, len(content), 9):
        for damaged in (flip(content, i), content[:i]):
            path.write_bytes(damaged)
            (draft / "train.ids").write_bytes(b"ids")
            assert Journal(draft / TEMPORARY, draft, CODE)["text"] is None
            assert not (draft / "train.ids").exists()
    path.write_bytes(content)
    assert Journal(draft / TEMPORARY, draft, CODE)["text"] is None  # src is gone


def test_refused_files_are_forgotten(draft: Path) -> None:
    """A file that was intact in a refused draft starts with no byte in the next one."""
    journal = Journal(draft / TEMPORARY, draft, CODE)
    paths = [journal.folder / name for name in ("first", "second")]
    for path in paths:
        path.write_bytes(b"a long text\n")
    journal.commit("text", 1, *paths)
    paths[1].write_bytes(b"changed text\n")
    journal = Journal(draft / TEMPORARY, draft, CODE)
    assert journal["text"] is None
    with journal.reopen(paths[0]) as file:
        file.write(b"short\n")
    journal.commit("text", 2, paths[0])
    assert Journal(draft / TEMPORARY, draft, CODE)["text"] == 2


def test_power_failure_keeps_committed_parts(tmp_path: Path) -> None:
    """The journal is written after its files are synced: it never names bytes that are lost."""

    def write_parts(folder: Path) -> None:
        draft = folder / "draft.partial"
        journal = Journal(draft / TEMPORARY, draft, CODE)
        for number in range(1, 4):
            with journal.reopen(journal.folder / "text") as file:
                file.write(b"some text\n")
            journal.commit("text", number, journal.folder / "text")

    (tmp_path / "uninterrupted").mkdir()
    n_operations = attempt(write_parts, tmp_path / "uninterrupted").operations
    seen = set()
    for number in range(1, n_operations + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        kill_at = BeforeOperation(number, power_fails=True)
        assert attempt(write_parts, folder, "sorted", kill_at).killed
        draft = folder / "draft.partial"
        had_journal = (draft / TEMPORARY / "journal.json").exists()
        part = Journal(draft / TEMPORARY, draft, CODE)["text"]
        assert (part is not None) == had_journal
        seen.add(part)
    assert {None, 1, 2} <= seen
