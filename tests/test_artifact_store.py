"""Artifacts: whole or not there at all, found again, never overwritten."""

import copy
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.errors import UserError
from nmtkit.files import (
    BusyError,
    DamagedError,
    canonical_json,
    check_room,
    check_seal,
    draft_of_file,
    draft_of_folder,
    move_folder,
    read_json,
    replace_file,
    sha256_of,
    sync,
    write_sealed,
)
from nmtkit.selftest.attempt import BeforeOperation, attempt
from nmtkit.store import TEMPORARY, Artifact, Store, fingerprint_of, verify

KIND, FINGERPRINT = "prepare", "0123456789abcdef"
DEPENDS_ON = {"corpus": {"tgt_lang": "de", "src_lang": "en"}, "inputs": ["a", "b"]}
FILES = {"vocabulary.tsv": b"the\t3\n", "checkpoints/step-7/model": bytes(range(256)), "empty": b""}


def write_files(draft: Path) -> None:
    for name, content in FILES.items():
        path = draft / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def publish(store: Store, seconds: float = 1.5) -> Artifact:
    with store.draft(KIND, FINGERPRINT) as draft:
        write_files(draft)
        return store.publish(
            KIND, FINGERPRINT, depends_on=DEPENDS_ON, measurements={"seconds": seconds}
        )


def bytes_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


# Published whole


def test_what_is_published_is_found_and_verified(store: Store) -> None:
    assert store.find(KIND, FINGERPRINT) is None
    published = publish(store)
    found = store.find(KIND, FINGERPRINT)
    assert found == published
    assert verify(found) is found
    assert found.manifest.fingerprint == FINGERPRINT
    assert found.manifest.depends_on == DEPENDS_ON
    assert found.manifest.files.keys() == FILES.keys()
    assert found.path == store.folder / KIND / FINGERPRINT
    written = bytes_of(found.path)
    assert {name: written[name] for name in FILES} == FILES
    assert read_json(found.path / "measurements.json")["seconds"] == 1.5
    assert store.find(KIND, "f" * 16) is None
    assert store.find("train", FINGERPRINT) is None


def test_files_with_measurements_are_published_unhashed(store: Store) -> None:
    with store.draft(KIND, FINGERPRINT) as draft:
        write_files(draft)
        (draft / "times.txt").write_text("1.5 s", encoding="utf-8")
        published = store.publish(
            KIND, FINGERPRINT, depends_on=DEPENDS_ON, measurements={}, measured=["times.txt"]
        )
    assert published.manifest.files.keys() == FILES.keys()
    assert (published.path / "times.txt").read_text(encoding="utf-8") == "1.5 s"


def test_a_draft_that_was_not_published_is_not_found(store: Store) -> None:
    with store.draft(KIND, FINGERPRINT) as draft:
        write_files(draft)
        assert store.find(KIND, FINGERPRINT) is None
    assert store.find(KIND, FINGERPRINT) is None


def test_a_draft_that_failed_is_not_found_and_leaves_no_manifest(store: Store) -> None:
    def fail() -> None:
        with store.draft(KIND, FINGERPRINT) as draft:
            write_files(draft)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert store.find(KIND, FINGERPRINT) is None
    assert not list(store.folder.rglob("manifest.json"))
    publish(store)
    assert store.find(KIND, FINGERPRINT) is not None


def test_a_draft_begins_empty_unless_it_is_resumed(store: Store) -> None:
    with store.draft(KIND, FINGERPRINT) as draft:
        write_files(draft)
    with store.draft(KIND, FINGERPRINT, resume=True) as draft:
        assert bytes_of(draft) == FILES
    with store.draft(KIND, FINGERPRINT) as draft:
        assert bytes_of(draft) == {}


@contextmanager
def dying_at(monkeypatch: pytest.MonkeyPatch, call: int) -> Iterator[None]:
    """Let the `call`-th fsync find the disk full."""
    calls = iter(range(1, 1000))
    sync = os.fsync

    def full(descriptor: int) -> None:
        if next(calls) == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        yield


def test_a_full_disk_at_any_moment_leaves_nothing_half_done(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in range(1, 100):
        with dying_at(monkeypatch, call), pytest.raises(OSError, match="No space left"):
            publish(store)
        found = store.find(KIND, FINGERPRINT)
        if found is not None:  # only the last sync comes after the renaming
            verify(found)
            break
        assert not (store.folder / KIND / FINGERPRINT).exists()
    # Files and measurements, manifest, two folders and the draft, and the folder above.
    assert call == len(FILES) + 1 + 1 + 2 + 1 + 1


def test_the_manifest_is_written_after_every_file_is_synced(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []

    def recording(path: Path) -> None:
        synced.append((path.name, (store.folder / KIND / f"{FINGERPRINT}.partial").exists()))
        if path.name in ("model", "vocabulary.tsv"):
            assert not (path.parent / "manifest.json").exists()
        sync(path)

    monkeypatch.setattr("nmtkit.store.sync", recording)
    publish(store)
    names = [name for name, _ in synced]
    assert set(names) > {"model", "vocabulary.tsv", "empty", "step-7", "checkpoints"}
    assert names.index("manifest.json") > max(map(names.index, ("model", "vocabulary.tsv")))
    assert [was_draft for _, was_draft in synced] == [True] * (len(synced) - 1) + [False]
    assert names[-1] == KIND


def test_a_moved_folder_gets_its_name_after_every_file_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, place = tmp_path / "draft", tmp_path / "place"
    (draft / "folder").mkdir(parents=True)
    (draft / "folder" / "file").write_bytes(b"content")
    synced: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        "nmtkit.files.sync", lambda path: synced.append((path.name, place.exists()))
    )
    move_folder(draft, place)
    assert sorted(synced[:-1]) == [("draft", False), ("file", False), ("folder", False)]
    assert synced[-1] == (tmp_path.name, True)
    assert (place / "folder" / "file").read_bytes() == b"content"


def test_a_file_too_large_for_the_disk_leaves_nothing_half_done(store: Store) -> None:
    """The system itself cuts a write short, at 4,096 bytes."""
    writer = f"""
import resource
from pathlib import Path
from nmtkit.store import Store
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
store = Store(Path({str(store.folder)!r}))
with store.draft({KIND!r}, {FINGERPRINT!r}) as draft:
    (draft / "ids").write_bytes(bytes(5000))
    store.publish({KIND!r}, {FINGERPRINT!r}, depends_on={{}}, measurements={{}})
"""
    done = subprocess.run(
        [sys.executable, "-c", writer], capture_output=True, encoding="utf-8", check=False
    )
    assert "File too large" in done.stderr
    assert store.find(KIND, FINGERPRINT) is None
    publish(store)


def test_nothing_is_ever_overwritten(store: Store) -> None:
    before = bytes_of(publish(store).path)
    with pytest.raises(OSError, match="not empty"):
        publish(store, seconds=9.0)
    found = store.find(KIND, FINGERPRINT)
    assert found is not None
    assert bytes_of(found.path) == before


def test_equal_inputs_give_equal_bytes_but_for_measurements(tmp_path: Path) -> None:
    first = bytes_of(publish(Store(tmp_path / "one"), seconds=1.5).path)
    second = bytes_of(publish(Store(tmp_path / "two"), seconds=2.5).path)
    assert first.pop("measurements.json") != second.pop("measurements.json")
    assert first == second
    assert str(tmp_path).encode() not in first["manifest.json"]


# Damaged


@pytest.mark.parametrize("name", ["vocabulary.tsv", "checkpoints/step-7/model"])
def test_a_flipped_byte_is_found_by_verify(name: str, store: Store) -> None:
    path = publish(store).path / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    found = store.find(KIND, FINGERPRINT)  # has the right size
    assert found is not None
    with pytest.raises(UserError, match=rf"{name} was altered .* delete .* and run again"):
        verify(found)


def test_a_changed_size_is_found_by_find(store: Store) -> None:
    path = publish(store).path / "checkpoints/step-7/model"
    path.write_bytes(bytes(255))
    with pytest.raises(
        UserError, match=r"step-7/model has 255 bytes but was published with 256 bytes"
    ):
        store.find(KIND, FINGERPRINT)


def test_a_missing_file_is_found_by_find(store: Store) -> None:
    (publish(store).path / "empty").unlink()
    with pytest.raises(UserError, match=r"empty is missing but was published with 0 bytes; delete"):
        store.find(KIND, FINGERPRINT)


def of_file(name: str = "a", bytes: str = "1", sha256: str = f'"{64 * "0"}"') -> str:  # noqa: A002
    """A manifest of one file, each part as JSON has it."""
    return f'{{"format": 2, "files": {{"{name}": {{"bytes": {bytes}, "sha256": {sha256}}}}}}}'


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (None, "not a finished artifact: it has no manifest.json"),
        ('{"format": 99}', "has format 99, but this version of nmtkit reads 2"),
        ('{"format": 1}', "has format 1, but this version of nmtkit reads 2; make it again"),
        ('{"format": 2', "manifest.json is damaged"),
        ("[" * 100_000, "manifest.json is damaged"),
        ("9" * 5_000, "manifest.json is damaged"),
        ('{"format": 2}', r"damaged \(\['files'\]: Field required"),
        (
            '{"format": 2, "files": {"a": {"bytes": 1}}}',
            r"damaged \(\['files'\]\['a'\]\['sha256'\]: Field",
        ),
        (of_file(bytes='"1"'), r"damaged \(\['files'\]\['a'\]\['bytes'\] = \S+: Input"),
        (of_file(bytes="-1"), r"damaged \(\['files'\]\['a'\]\['bytes'\] = \S+: Input"),
        (of_file(sha256='"../etc"'), r"damaged \(\['files'\]\['a'\]\['sha256'\] = \S+: String"),
        (of_file(name="a\\nb"), r"damaged \(\['files'\]\['a\\nb'\]"),
    ],
)
def test_a_folder_without_a_good_manifest_is_refused(
    manifest: str | None, message: str, store: Store
) -> None:
    path = publish(store).path / "manifest.json"
    path.unlink()
    if manifest is not None:
        path.write_text(manifest, encoding="utf-8", newline="\n")
    with pytest.raises(UserError, match=message) as caught:
        store.find(KIND, FINGERPRINT)
    assert "\n" not in str(caught.value)


def test_only_the_named_files_are_hashed(store: Store) -> None:
    published = publish(store)
    (published.path / "vocabulary.tsv").write_bytes(b"The\t3\n")
    verify(published, "empty", "checkpoints/step-7/model")
    for names in ((), ("empty", "vocabulary.tsv")):
        with pytest.raises(UserError, match=r"vocabulary\.tsv was altered"):
            verify(published, *names)
    with pytest.raises(UserError, match=r"was published without measurements\.json; delete"):
        verify(published, "measurements.json")


# Synced


def test_a_file_is_synced_before_it_takes_its_place_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, place = tmp_path / "new", tmp_path / "place"
    new.write_bytes(b"content")
    file, folder = (path.stat().st_ino for path in (new, tmp_path))
    synced: list[tuple[int, bool]] = []
    sync = os.fsync

    def recording(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, place.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", recording)
    replace_file(new, place)
    assert synced == [(file, False), (folder, True)]
    assert place.read_bytes() == b"content"


# Room


def test_room_is_checked_to_the_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=299_999)
    monkeypatch.setattr("shutil.disk_usage", {tmp_path: usage}.__getitem__)
    check_room(tmp_path, 299_999, "training")
    message = rf"^training needs 300,000 bytes in {tmp_path}, where 299,999 are free; free some"
    with pytest.raises(UserError, match=message):
        check_room(tmp_path, 300_000, "training")


def test_more_than_the_disk_holds_is_refused(tmp_path: Path) -> None:
    check_room(tmp_path, 1, "training")
    with pytest.raises(UserError, match="training needs"):
        check_room(tmp_path, 2**62, "training")


# Locked


@contextmanager
def another_writer(store: Store) -> Iterator[subprocess.Popen[str]]:
    """A process that has a draft open."""
    writer = f"""
import sys
from pathlib import Path
from nmtkit.store import Store
with Store(Path({str(store.folder)!r})).draft({KIND!r}, {FINGERPRINT!r}) as draft:
    (draft / "half").write_bytes(b"done")
    print("writing", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", writer],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_writer_is_told_who_writes(store: Store) -> None:
    with another_writer(store) as process:
        named = rf"{KIND} {FINGERPRINT} is being made by process {process.pid} on {os.uname()[1]} "
        with pytest.raises(UserError, match=named), store.draft(KIND, FINGERPRINT):
            pytest.fail("two writers")
        with store.draft(KIND, "another"):
            pass
    assert (store.folder / KIND / f"{FINGERPRINT}.partial" / "half").read_bytes() == b"done"


def test_the_lock_of_a_killed_writer_is_free(store: Store) -> None:
    with another_writer(store) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert store.find(KIND, FINGERPRINT) is None
        assert verify(publish(store)).manifest.files.keys() == FILES.keys()


# Fingerprints

texts = st.text('aß\u2028"\n', max_size=3)
numbers = st.integers(-99, 99) | st.floats(allow_nan=False)
leaves = st.none() | st.booleans() | numbers | texts


def branches(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)


trees = st.dictionaries(texts, st.recursive(leaves, branches, max_leaves=5), max_size=3)


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@given(trees)
def test_a_fingerprint_does_not_depend_on_the_order_of_keys(tree: dict[str, Any]) -> None:
    assert fingerprint_of(KIND, tree) == fingerprint_of(KIND, reordered(tree))


def exact(value: Any) -> object:
    """A value with its types, in which True is not 1 and 0.0 is neither 0 nor -0.0."""
    if isinstance(value, dict):
        return {key: exact(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [exact(inner) for inner in value]
    return type(value), repr(value)


@given(trees, trees)
def test_a_fingerprint_changes_exactly_if_a_value_changes(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    same = fingerprint_of(KIND, one) == fingerprint_of(KIND, other)
    assert same == (exact(one) == exact(other))


@given(trees, st.data())
def test_one_changed_leaf_changes_the_fingerprint(
    tree: dict[str, Any], data: st.DataObject
) -> None:
    key = data.draw(texts, label="key")
    one, other = (data.draw(leaves, label=label) for label in ("one", "other"))
    if exact(one) != exact(other):
        first, second = ({**tree, key: {"deep": [1, value]}} for value in (one, other))
        assert fingerprint_of(KIND, first) != fingerprint_of(KIND, second)


def test_a_fingerprint_depends_on_the_kind() -> None:
    fingerprints = {fingerprint_of(kind, DEPENDS_ON) for kind in ("prepare", "train")}
    assert len(fingerprints) == 2
    assert all(len(each) == 16 and int(each, 16) >= 0 for each in fingerprints)


def test_a_fingerprint_stays_what_it_was_from_one_release_to_the_next() -> None:
    """A change here makes every user's artifacts be made again: only together with FORMAT."""
    text = (
        '{\n "depends_on": {\n  "a": [\n   1,\n   "ß"\n  ]\n },\n "format": 2,\n "kind": "k"\n}\n'
    )
    assert canonical_json({"kind": "k", "format": 2, "depends_on": {"a": [1, "ß"]}}) == text
    assert fingerprint_of("k", {"a": [1, "ß"]}) == "ae644c95924fd960"  # sha256sum of text


@given(trees)
def test_json_is_read_as_it_was_written(tree: dict[str, Any]) -> None:
    assert exact(json.loads(canonical_json(tree))) == exact(tree)


def test_sha256_is_that_of_the_standard(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")  # FIPS 180-2, appendix B.1
    assert sha256_of(tmp_path / "abc") == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


def test_a_file_is_replaced_only_if_its_draft_is_finished(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to("file")
    for place, text in ((file, "first"), (link, "second")):
        with draft_of_file(place) as draft:
            draft.write_text(text, encoding="utf-8")
    assert link.is_symlink()
    with suppress(RuntimeError), draft_of_file(file) as draft:
        draft.write_text("half", encoding="utf-8")
        raise RuntimeError
    assert file.read_text(encoding="utf-8") == "second"
    assert draft.read_text(encoding="utf-8") == "half"


def test_a_device_is_written_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with draft_of_file(pipe) as draft:
        assert draft == pipe
    assert pipe.is_fifo()


def test_temporary_files_of_a_draft_are_gone_when_it_is_published(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.draft(KIND, FINGERPRINT) as draft:
        write_files(draft)
        (draft / TEMPORARY / "deep").mkdir(parents=True)
        (draft / TEMPORARY / "deep" / "text").write_text("half", encoding="utf-8")
        made = store.publish(KIND, FINGERPRINT, depends_on=DEPENDS_ON, measurements={})
    assert set(made.manifest.files) == set(FILES)
    assert not (made.path / TEMPORARY).exists()


def test_a_kill_while_temporary_files_go_leaves_no_part_of_them_in_the_draft(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever order their folder lists them."""
    with store.draft(KIND, FINGERPRINT) as draft:
        write_files(draft)
        for name in ("src", "tgt", "journal.json"):
            (draft / TEMPORARY).mkdir(exist_ok=True)
            (draft / TEMPORARY / name).write_bytes(b"half")

        def killed(folder: Path) -> None:
            (folder / "src").unlink()
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", killed)
            with pytest.raises(KeyboardInterrupt):
                store.publish(KIND, FINGERPRINT, depends_on={}, measurements={})
        assert not (draft / TEMPORARY).exists()
    with store.draft(KIND, FINGERPRINT, resume=True) as draft:
        assert set(FILES) < bytes_of(draft).keys()
        made = store.publish(KIND, FINGERPRINT, depends_on={}, measurements={})
    assert set(made.manifest.files) == set(FILES)
    assert {path.suffix for path in made.path.parent.iterdir()} == {"", ".lock"}


# Sealed


def test_every_flipped_bit_of_a_sealed_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "sealed.json"
    write_sealed(path, {"text": "aß\n", "numbers": [1, -0.5], "deep": {"none": None}})
    assert check_seal(path)
    content = path.read_bytes()
    for place in range(8 * len(content)):
        changed = bytearray(content)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        with suppress(DamagedError):
            assert not check_seal(path)  # it has lost the key of its hash
            assert b'"sha256"' not in changed


@pytest.mark.parametrize("content", [b"[]", b"{", b"\xff", b'{"a": 1, "sha256": "0"}'])
def test_what_is_no_sealed_file_is_refused_and_an_older_one_is_not(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "sealed.json"
    path.write_bytes(content)
    with pytest.raises(DamagedError):
        check_seal(path)
    path.write_bytes(b'{"a":1}')
    assert not check_seal(path)


def test_half_a_surrogate_pair_in_a_sealed_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "sealed.json"
    write_sealed(path, {"name": "demo"})
    path.write_text(path.read_text(encoding="utf-8").replace("demo", "\\ud800"), encoding="utf-8")
    with pytest.raises(DamagedError, match="was altered"):
        check_seal(path)


def test_altered_manifest_is_found_when_the_artifact_is_opened(store: Store) -> None:
    path = publish(store).path / "manifest.json"
    text = path.read_text(encoding="utf-8")
    python = json.loads(text)["made_by"]["python"]
    path.write_text(text.replace(f'"{python}"', '"2.7.18"'), encoding="utf-8", newline="\n")
    with pytest.raises(UserError, match=r"manifest\.json was altered .* own sha256\); delete"):
        store.find(KIND, FINGERPRINT)


def test_lock_file_says_what_is_being_made_and_by_whom(store: Store) -> None:
    with store.draft(KIND, FINGERPRINT, note={"run": "demo"}):
        lines = (store.folder / KIND / f"{FINGERPRINT}.lock").read_text(encoding="utf-8")
    assert lines == f'process {os.getpid()} on {os.uname()[1]}\n{{"run": "demo"}}\n'


def test_a_file_is_written_by_one_process_at_a_time(tmp_path: Path) -> None:
    place = tmp_path / "text"
    with draft_of_file(place) as draft:
        draft.write_text("first\n", encoding="utf-8")
        with (
            pytest.raises(BusyError, match=r"another process is writing .*text; wait"),
            draft_of_file(place),
        ):
            pass
    assert place.read_text(encoding="utf-8") == "first\n"
    assert list(tmp_path.iterdir()) == [place]


def write_folder(folder: Path) -> None:
    with draft_of_folder(folder / "out") as draft:
        write_files(draft)
        move_folder(draft, folder / "out")


@pytest.mark.parametrize("order", ["sorted", "reversed"])
def test_a_folder_is_written_wherever_earlier_writers_were_killed(
    tmp_path: Path, order: str
) -> None:
    (tmp_path / "whole").mkdir()
    n_operations = attempt(write_folder, tmp_path / "whole", order).operations
    assert n_operations > 10
    for number in range(1, n_operations + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert attempt(write_folder, folder, order, BeforeOperation(number)).killed
        again = 0
        while not (folder / "out").exists():
            again += 2  # what clears the draft is killed too, later each time
            ended = attempt(write_folder, folder, order, BeforeOperation(again))
            assert ended.killed or ended.code == 0, ended.said
        assert bytes_of(folder / "out") == FILES


def test_a_folder_is_written_by_one_process_at_a_time(tmp_path: Path) -> None:
    with draft_of_folder(tmp_path / "out") as draft:
        write_files(draft)
        with (
            pytest.raises(BusyError, match=r"another process is writing .*out; wait"),
            draft_of_folder(tmp_path / "out"),
        ):
            pass
        assert bytes_of(draft) == FILES
    assert not list(tmp_path.iterdir())


def test_what_nmtkit_did_not_make_is_not_taken_for_a_draft(tmp_path: Path) -> None:
    for name in ("folder", "file", "link"):
        place, own = tmp_path / name, tmp_path / f"{name}.partial"
        if name == "folder":
            own.mkdir()
            write_files(own)
        elif name == "file":
            own.write_bytes(b"")
        else:
            own.symlink_to("nowhere")
        with (
            pytest.raises(UserError, match=rf"{name}\.partial, where .* is not nmtkit's; move it"),
            draft_of_folder(place),
        ):
            pass
    assert bytes_of(tmp_path / "folder.partial") == FILES
    assert len(list(tmp_path.iterdir())) == 3


def test_a_standard_stream_is_not_replaced() -> None:
    with (
        pytest.raises(UserError, match="is open already"),
        draft_of_file(Path("/proc/self/status")),
    ):
        pass


def test_damage_is_told_by_another_process() -> None:
    error = DamagedError("it was altered", "delete it")
    again = copy.copy(error)  # as pickle does
    assert (str(again), again.reason) == ("it was altered; delete it", "it was altered")
