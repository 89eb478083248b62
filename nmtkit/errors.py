"""What is shown to a person without a traceback."""

from nmtkit.visible import visible


class UserError(Exception):
    """A mistake that the user can mend.

    The message is one sentence: what is wrong, where, the value seen, what to do. It is one line
    without control characters, although it may quote a hostile file.
    """

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


class Stopped(Exception):  # noqa: N818 - nothing went wrong
    """Work was stopped by a signal and can be gone on with."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Told(Exception):  # noqa: N818 - a way to end
    """This process ends without a word, because another one has said why."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"ends with exit code {exit_code}")
        self.exit_code = exit_code


def shown(value: object) -> str:
    """How a message shows a value that somebody else wrote: on one line, and cut where long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
