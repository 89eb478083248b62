"""A journal is believed where the same code wrote it, and nowhere else."""

from pathlib import Path
from typing import Any

import pytest

from nmtkit import artifacts
from nmtkit.stages.journal import Journal


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    folder = tmp_path / "draft.partial"
    folder.mkdir()
    return folder


def test_what_was_committed_is_told_to_the_next_run(draft: Path) -> None:
    first = Journal(draft)
    assert first["text"] is None
    first.commit("text", {"chunks": 3, "names": ["ü\u2028"]})
    first.commit("learned", True)
    first.commit("text", {"chunks": 4, "names": []})
    (draft / "train.ids").write_bytes(b"ids")
    again = Journal(draft)
    assert again["text"] == {"chunks": 4, "names": []}
    assert again["learned"] is True
    assert (draft / "train.ids").read_bytes() == b"ids"


def test_a_draft_without_a_journal_is_emptied(draft: Path) -> None:
    (draft / "train.ids").write_bytes(b"of unknown making")
    Journal(draft)
    assert [path.name for path in draft.iterdir()] == [artifacts.TEMPORARY]


def test_a_draft_of_other_code_is_emptied(draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Journal(draft).commit("text", 1)
    (draft / "train.ids").write_bytes(b"of other making")
    other: dict[str, Any] = {**artifacts.versions(), "code": "0" * 16}
    monkeypatch.setattr(artifacts, "versions", lambda: other)
    assert Journal(draft)["text"] is None
    assert not (draft / "train.ids").exists()


def test_a_commit_cut_short_leaves_the_one_before(draft: Path) -> None:
    journal = Journal(draft)
    journal.commit("text", 1)
    (journal.folder / "journal.new").write_bytes(b'{"made_by"')
    assert Journal(draft)["text"] == 1
