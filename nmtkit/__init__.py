"""nmtkit: the experiments of "Attention Is All You Need", from raw text to its tables."""

TYPE_CHECKING = False  # importing that of typing takes time, and Ctrl-C would not be caught
if TYPE_CHECKING:
    from nmtkit.translator import Translator

__all__ = ["Translator", "__version__"]
__version__ = "0.3.0"


def __getattr__(name: str) -> object:
    """Import `Translator` on first use: `import nmtkit` takes no time."""
    if name == "Translator":
        from nmtkit.utils.hardware import check_system, let_waiting_threads_sleep

        check_system()
        let_waiting_threads_sleep()
        from nmtkit.translator import Translator

        return Translator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
