"""Links in a folder of artifacts from somebody else: no file that they lead to is changed."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from chains import tiny_pipeline

from nmtkit.stages.run_all import run_all
from nmtkit.store.artifacts import Store
from nmtkit.store.files import write_whole
from nmtkit.store.locks import find_holder, locked
from nmtkit.store.records import write_json
from nmtkit.utils.errors import UserError
from system.kills import FOR_WRITING

MINE = b"a file of the user\n"


class Written:
    """The files and folders that a pipeline creates under its folder of artifacts."""

    def __init__(self, folder: Path) -> None:
        """Run the pipeline in a fork, which can report its operations: audit hooks stay forever."""
        report = folder / "report.json"
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self._record(folder, report)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        self.files, self.folders = json.loads(report.read_text(encoding="utf-8"))

    @staticmethod
    def _record(folder: Path, report: Path) -> None:
        runs = folder / "runs"
        files: set[str] = set()
        folders: set[str] = set()

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            written: list[tuple[set[str], object]] = []
            if event == "open" and isinstance(arguments[2], int) and arguments[2] & FOR_WRITING:
                written.append((files, arguments[0]))
            elif event == "os.mkdir":
                written.append((folders, arguments[0]))
            elif event == "os.rename":
                is_folder = Path(str(arguments[0])).is_dir()
                written.append((folders if is_folder else files, arguments[1]))
            for places, path in written:
                if isinstance(path, str | Path) and Path(path).is_relative_to(runs):
                    places.add(str(Path(path).relative_to(runs)))

        sys.addaudithook(hook)
        run_all(tiny_pipeline(folder))
        content = json.dumps([sorted(files), sorted(folders)])
        report.write_text(content, encoding="utf-8")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("clean"))


def run_until_done(folder: Path, links: list[Path]) -> int:
    """Run the pipeline, and delete the links that it refuses; return their number."""
    for n_refused in range(len(links)):
        try:
            run_all(tiny_pipeline(folder))
            return n_refused
        except UserError as error:
            message = str(error)
        named = [link for link in links if link.is_symlink() and str(link) in message]
        for link in named:
            link.unlink()
        if not named:  # the folder of an artifact that is not one
            (parent,) = {link.parent for link in links if str(link.parent) in message.split()}
            shutil.rmtree(parent)
    raise AssertionError


def test_links_to_files_are_not_followed(written: Written, tmp_path: Path) -> None:
    """At every path that a pipeline writes, also at those that it deletes."""
    runs = tmp_path / "runs"
    targets = []
    links = []
    for number, name in enumerate(written.files):
        link = runs / name
        links.append(link)
        link.parent.mkdir(parents=True, exist_ok=True)
        target = tmp_path / f"mine-{number}"
        if number % 2:
            target.write_bytes(MINE)
        link.symlink_to(target)
        targets.append(target)
    assert len(targets) > 40
    assert run_until_done(tmp_path, links) > 5
    for number, target in enumerate(targets):
        if number % 2:
            assert target.read_bytes() == MINE, written.files[number]
        else:
            assert not target.exists(), written.files[number]


def test_links_to_folders_are_not_followed(written: Written, tmp_path: Path) -> None:
    """Not those inside of an artifact; a stage may be on another disk."""
    names = [name for name in written.folders if len(Path(name).parts) > 1]
    assert len(names) > 8
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        mine = folder / "mine"
        mine.mkdir(parents=True)
        for file in ("note.json", "src", "manifest.json", "metrics.jsonl", "draft", "nmtkit.lock"):
            (mine / file).write_bytes(MINE)
        before = sorted(mine.iterdir())
        link = folder / "runs" / name
        link.parent.mkdir(parents=True)
        link.symlink_to(mine)
        with suppress(UserError):
            run_all(tiny_pipeline(folder))
        assert sorted(mine.iterdir()) == before, name
        for path in before:
            assert path.read_bytes() == MINE, name


def test_linked_folder_of_runs_works(tmp_path: Path) -> None:
    """The user's own `runs`, or a stage in it, may be a link to another disk."""
    disk = tmp_path / "disk"
    (disk / "train").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").symlink_to(disk)
    (disk / "average").symlink_to(tmp_path / "elsewhere")
    pipeline = tiny_pipeline(tmp_path)
    run_all(pipeline)
    assert (disk / "train" / pipeline.fingerprint("train") / "manifest.json").is_file()
    assert (tmp_path / "elsewhere" / pipeline.fingerprint("average")).is_dir()


def test_page_replaces_link(tmp_path: Path) -> None:
    """The page of curves is written under its own name."""
    pipeline = tiny_pipeline(tmp_path)
    page = pipeline.store.place("train", pipeline.fingerprint("train")).with_suffix(".html")
    page.parent.mkdir(parents=True)
    (tmp_path / "mine").write_bytes(MINE)
    page.symlink_to(tmp_path / "mine")
    run_all(pipeline)
    assert not page.is_symlink()
    assert b"<html" in page.read_bytes()
    assert (tmp_path / "mine").read_bytes() == MINE


def lock(path: Path) -> None:
    with locked(path, "work", note={}):
        pass


def write_partial(path: Path) -> None:
    write_whole(path.with_suffix(".json"), "text")


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe"])
@pytest.mark.parametrize("write", [lock, write_partial, lambda path: write_json(path, {})])
def test_place_of_own_file(kind: str, write: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "own.partial"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("mine" if kind == "link" else "none")
    (tmp_path / "mine").write_bytes(MINE)
    with pytest.raises(UserError, match=rf"{path} is .*; delete it"):
        write(path)
    assert (tmp_path / "mine").read_bytes() == MINE
    assert not (tmp_path / "none").exists()
    if kind != "pipe":
        assert find_holder(path) is None


def test_pipe_in_draft_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    draft = store.draft_place("train", "0" * 16)
    (draft / "checkpoints").mkdir(parents=True)
    os.mkfifo(draft / "checkpoints" / "metrics.jsonl")
    with pytest.raises(UserError, match="neither a file nor a folder"):  # noqa: SIM117
        with store.draft("train", "0" * 16, resume=True):
            pass
    shutil.rmtree(draft)
    aside = draft.with_suffix(".damaged")
    aside.symlink_to(tmp_path)
    with pytest.raises(UserError, match="is a link to"):  # noqa: SIM117
        with store.draft("train", "0" * 16, resume=True):
            pass
