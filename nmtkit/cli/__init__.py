"""The command line: one module per command.

`app.py` lists the commands. `options.py` declares the options that several of them share,
`checks.py` checks their values, and `inputs.py` finds the recipe or the bundles that they name.
`main` turns a user's mistake into one sentence and a non-zero exit code.
"""

import errno
import os
import sys

import typer

from nmtkit.cli.app import app as app
from nmtkit.utils.errors import (
    AlreadyReported,
    RestartNeeded,
    Stopped,
    UserError,
    is_out_of_memory,
)
from nmtkit.utils.interrupts import exit_interrupted, was_interrupted
from nmtkit.utils.processes import NO_CUDA_GRAPHS, exit_with_agent
from nmtkit.utils.streams import STANDARD_OUTPUT
from nmtkit.utils.text import visible

CLOSED_PIPE = 141  # exit code: 128 + SIGPIPE
OUT_OF_MEMORY = (
    "out of memory; lower --workers, --processes, --max-tokens or --beam, choose a smaller "
    "model, or free memory"
)
RERUN = "rerun the same command"  # finished work is kept


def main() -> None:
    """Run the command that was typed, and exit with a message and a code if it fails."""
    exit_with_agent()
    try:
        app()
    except UserError as error:
        sys.exit(f"nmtkit: {error}")
    except Stopped as stop:
        if was_interrupted():
            exit_interrupted(str(stop))
        typer.echo(f"nmtkit: {stop}", err=True)
        sys.exit(stop.exit_code)
    except RestartNeeded:
        os.environ[NO_CUDA_GRAPHS] = "1"
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - this command itself
    except AlreadyReported as end:
        sys.exit(end.exit_code)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer exits with 1 on it
            sys.exit(CLOSED_PIPE)
        raise
    except OSError as error:
        sys.exit(f"nmtkit: {_explain(error)}")
    except (MemoryError, RuntimeError, ImportError) as error:
        if not is_out_of_memory(error) and "can't start new thread" not in str(error):
            raise
        sys.exit(f"nmtkit: {OUT_OF_MEMORY}; then {RERUN}")


def _explain(error: OSError) -> str:
    """Describe an error of the system: what failed, where, and what to do."""
    # The system does not name a file that is open already.
    where = "(in --runs-dir, or at the output path)"
    if error.filename:
        where = visible(f"({error.filename})")
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk is full {where}; free some space, then {RERUN}"
    if error.errno == errno.EBADF and error.filename == STANDARD_OUTPUT:
        return f"standard output is closed; redirect it to a file or a pipe, then {RERUN}"
    if error.errno == errno.ENOMEM:
        return f"{OUT_OF_MEMORY}; then {RERUN}"
    return f"{error.strerror or error} {where}; fix this, then {RERUN}"
