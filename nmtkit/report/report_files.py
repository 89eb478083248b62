"""Writes a report to a folder, without overwriting files that no report wrote."""

import hashlib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from nmtkit.rendering.document import (
    files_for_paper,
    markdown_paragraphs,
    render_page,
    replace_page,
)
from nmtkit.rendering.show import as_json
from nmtkit.report.collection import Report
from nmtkit.report.report import report_document
from nmtkit.store.records import DamagedError, file_sha256, read_record
from nmtkit.utils.errors import UserError

PAGES = ("report.html", "report.md", "report.json")
PAPER_FILE = r"^(tables|charts)/[^/\\]+\.(md|tex|csv|svg)$"
MAX_BYTES = 2**26  # of an earlier report.json


class _EarlierReport(BaseModel):
    """The keys of an earlier report.json that list its files."""

    made_by: dict[str, str]
    files: dict[Annotated[str, Field(pattern=PAPER_FILE)], str]  # hashes by name


def write_report(folder: Path, report: Report) -> dict[str, object]:
    """Write a report: pages, and tables and charts for a paper.

    Tables and charts that only an earlier report in the folder has are deleted, unless they were
    changed since: the report.json there may be somebody else's.

    Returns:
        The content of report.json.

    Raises:
        UserError: A file of the folder is in the way.
    """
    document = report_document(report)
    paper_files = dict(files_for_paper(document))
    hashes = {}
    for name, text in paper_files.items():
        hashes[name] = hashlib.sha256(text.encode("utf-8")).hexdigest()
    content = {**report.as_json(), "files": hashes}
    earlier = _earlier_files(folder)
    # Nothing is written before all files are known to be ours.
    for name in list(paper_files) + list(PAGES):
        _refuse_links(folder, name)
        if name not in earlier and (folder / name).exists():
            raise UserError(
                f"{folder / name} exists and was not written by an earlier report; move it, or "
                "pass another --output"
            )

    for name in earlier.keys() - {*paper_files, *PAGES}:
        _refuse_links(folder, name)
        if (folder / name).is_file() and file_sha256(folder / name) == earlier[name]:
            (folder / name).unlink()
    # report.json comes first: after a kill, it lists the files that the next report may overwrite.
    files = {"report.json": f"{as_json(content)}\n", **paper_files}
    files["report.md"] = "\n\n".join(markdown_paragraphs(document)) + "\n"
    files["report.html"] = render_page(document)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        replace_page(folder / name, text, follow_link=False)
    return content


def _refuse_links(folder: Path, name: str) -> None:
    """Refuse a file of the report that is a link, or in a linked folder.

    Args:
        folder: The folder of the report; it may be a link.

    Raises:
        UserError: It is a link, and could lead to any file.
    """
    for part in (name, name.rpartition("/")[0]):
        path = folder / part
        if part and path.is_symlink():
            raise UserError(
                f"{path} is a link to {path.readlink()} that no report wrote; delete it, or pass "
                "another --output"
            )


def _earlier_files(folder: Path) -> dict[str, str]:
    """Return the hashes of the files of an earlier report in a folder, by name; none without one.

    The pages have no hash: they contain the time.
    """
    try:
        earlier = read_record(folder / "report.json", _EarlierReport, MAX_BYTES)
    except DamagedError:  # missing, or the user's file of the same name
        return {}
    return {**earlier.files, **dict.fromkeys(PAGES, "")}
