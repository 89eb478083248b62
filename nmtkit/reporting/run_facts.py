"""The facts of a scored run that reports show, and its cells in tables."""

from dataclasses import dataclass, field
from typing import Any

from nmtkit.reporting.grid import Link
from nmtkit.reporting.training_cost import TrainingCost


@dataclass(frozen=True)
class RunFacts:
    """A scored run. README.md describes the fields, which are those of report.json."""

    id: str  # the fingerprint of its scores
    label: str  # the study and its row, or the recipe and its overrides
    command: str
    name: str
    description: str
    languages: tuple[str, str]
    scores: dict[str, Any]
    stages: list[dict[str, Any]]  # the artifacts that it was built from
    n_parameters: int | None = None
    steps: int | None = None
    cost: TrainingCost | None = None
    dev: list[dict[str, Any]] = field(default_factory=list)  # evaluations during training


def run_link(run: RunFacts, prefix: str = "") -> Link:
    """Return a cell with the label of a run, behind `prefix`, that links to its provenance."""
    return Link(prefix + run.label, f"run-{run.id}")


def cost_cells(run: RunFacts) -> tuple[str, str]:
    """Return the cost of a training as Table 2 counts it, and its matrix products."""
    if run.cost is None:
        return "", ""
    return _flops(run.cost.time_flops), _flops(run.cost.product_flops)


def _flops(value: float | None) -> str:
    """Return a number of operations as Table 2 prints it, such as 3.3e18."""
    return "" if value is None else f"{value:.1e}".replace("e+", "e")
