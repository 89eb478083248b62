"""nmtkit: the experiments of "Attention Is All You Need", from raw text to its tables."""

from importlib import import_module

TYPE_CHECKING = False  # importing that of typing takes time, and Ctrl-C would not be caught
if TYPE_CHECKING:
    from nmtkit.translator import Translator

__all__ = ["Translator", "__version__"]
__version__ = "0.3.0"


def check_system() -> None:
    """Check that this system has the file locks of Unix, without which no artifact is published.

    Raises:
        ImportError: It has not.
    """
    try:
        import_module("fcntl")
    except ImportError:
        raise ImportError("nmtkit runs on Linux and macOS; on Windows use WSL") from None


def __getattr__(name: str) -> object:
    """Import `Translator` on first use: `import nmtkit` takes no time."""
    if name == "Translator":
        check_system()
        from nmtkit.utils.hardware import let_waiting_threads_sleep

        let_waiting_threads_sleep()
        from nmtkit.translator import Translator

        return Translator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
