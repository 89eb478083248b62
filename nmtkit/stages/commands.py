"""Command lines on one recipe: those that messages print, and those of child processes."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmtkit.config.settings import RUNS
from nmtkit.utils import progress


@dataclass(frozen=True)
class Commands:
    """Command lines on a recipe with overrides. Those for messages are quoted for a shell."""

    recipe: str  # its name or path, as the user typed it
    overrides: Sequence[str]  # values of --set
    runs_dir: Path

    def stage(self, name: str) -> str:
        """Return the command that runs a stage, or all of them if the name is "run"."""
        return shlex.join(["nmtkit", name, *self._arguments()])

    def translate(self) -> str:
        """Return the command that translates any text with the model of the recipe."""
        return shlex.join(["nmtkit", "translate", "--recipe", *self._arguments()])

    def report(self) -> str:
        """Return the command that reports all runs in the folder of artifacts."""
        return shlex.join(["nmtkit", "report", *self._runs_dir_arguments()])

    def child_arguments(self, command: Sequence[str]) -> list[str]:
        """Return the arguments of nmtkit in a child process that runs a command on the recipe.

        Args:
            command: The name of the command and its options.
        """
        arguments = ["--quiet"] if progress.console.quiet else []
        arguments += command
        arguments += [f"--set={override}" for override in self.overrides]
        arguments += ["--", self.recipe]  # the name of a recipe may begin with "-"
        return arguments

    def _arguments(self) -> list[str]:
        """Return the recipe and the options that select its artifacts."""
        overrides = [f"--set={override}" for override in self.overrides]
        return [self.recipe, *overrides, *self._runs_dir_arguments()]

    def _runs_dir_arguments(self) -> list[str]:
        """Return the option that selects the folder of artifacts, unless it is the default."""
        return [] if self.runs_dir == RUNS else [f"--runs-dir={self.runs_dir}"]
