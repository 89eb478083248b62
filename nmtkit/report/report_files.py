"""Writes a report to a folder, without overwriting files that no report wrote."""

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
from nmtkit.store.records import DamagedError, read_record
from nmtkit.utils.errors import UserError

PAGES = ("report.html", "report.md", "report.json")
PAPER_FILE = r"^(tables|charts)/[^/\\]+\.(md|tex|csv|svg)$"
MAX_BYTES = 2**26  # of an earlier report.json


class _EarlierReport(BaseModel):
    """The keys of an earlier report.json that list its files."""

    made_by: dict[str, str]
    files: set[Annotated[str, Field(pattern=PAPER_FILE)]]


def write_report(folder: Path, report: Report) -> dict[str, object]:
    """Write a report: pages, and tables and charts for a paper.

    Tables and charts that only an earlier report in the folder has are deleted.

    Args:
        folder: The folder.
        report: The report.

    Returns:
        The content of report.json.

    Raises:
        UserError: A file of the folder is in the way.
    """
    document = report_document(report)
    paper_files = dict(files_for_paper(document))
    content = {**report.as_json(), "files": list(paper_files)}
    earlier = _earlier_files(folder)
    # Nothing is written before all files are known to be ours.
    for name in list(paper_files) + list(PAGES):
        if name not in earlier and (folder / name).exists():
            raise UserError(
                f"{folder / name} exists and was not written by an earlier report; move it, or "
                "pass another --output"
            )

    for name in earlier.difference(paper_files, PAGES):
        (folder / name).unlink(missing_ok=True)
    # report.json comes first: after a kill, it lists the files that the next report may overwrite.
    files = {"report.json": f"{as_json(content)}\n", **paper_files}
    files["report.md"] = "\n\n".join(markdown_paragraphs(document)) + "\n"
    files["report.html"] = render_page(document)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        replace_page(folder / name, text)
    return content


def _earlier_files(folder: Path) -> set[str]:
    """Return the files of an earlier report in a folder; none without one."""
    try:
        earlier = read_record(folder / "report.json", _EarlierReport, MAX_BYTES)
    except DamagedError:  # missing, or the user's file of the same name
        return set()
    return earlier.files.union(PAGES)
