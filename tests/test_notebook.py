"""The notebook for Colab on the demo, with few steps; needs nbclient and ipykernel."""

import os
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).resolve().parents[1] / "pipelines" / "colab.ipynb"
PARAMETERS = """
RECIPE = "demo"
OPTIONS = "--set training.max_steps=20 --set training.checkpoint_every_steps=5"
MACHINE = "--device cpu"
SENTENCE = "The baker has a red house."
"""


@pytest.mark.slow
def test_notebook_runs_on_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    # Its shell commands find the nmtkit of this environment.
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in list(notebook.cells):
        tags = cell.metadata.get("tags", [])
        if "parameters" in tags:
            cell.source = PARAMETERS
        if "install" in tags:
            notebook.cells.remove(cell)
    client = nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()

    pages = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            # A shell command that fails prints its error and leaves the cell successful.
            assert "nmtkit: " not in output.get("text", ""), output
            assert "Warning" not in output.get("text", ""), output
            assert "\x1b[1A" not in output.get("text", "")  # no cell redraws lines
            if "text/html" in output.get("data", {}):
                pages.append(output["data"]["text/html"])
    assert len(pages) == 2  # curves and attention
    assert all("<svg" in page or "&lt;svg" in page for page in pages)
    assert list(tmp_path.glob("runs/score/*/scores.json"))
