"""Signs that a model is not trained well enough: most translations are empty or equal."""

from collections import Counter
from collections.abc import Iterable

from nmtkit.utils.text import is_blank, shorten

MIN_LINES = 10  # with fewer, equal translations are no sign
MAX_SHARE = 0.5  # of the translations, above which there is a warning
ADVICE = "the model needs more training or more data"


def degenerate_warning(pairs: Iterable[tuple[str, str]]) -> str | None:
    """Warn if most translations are empty, or most are the same.

    Args:
        pairs: Source lines and their translations. Blank and repeated lines do not count: their
            translations are rightly empty or equal.

    Returns:
        A sentence, or None if there is nothing to warn of.
    """
    translations = {}  # by source line
    for src, hyp in pairs:
        if not is_blank(src):
            translations[src] = hyp.strip()
    n_lines = len(translations)
    if n_lines < MIN_LINES:
        return None
    [(most_common, n_equal)] = Counter(translations.values()).most_common(1)
    if n_equal <= MAX_SHARE * n_lines:
        return None
    if is_blank(most_common):
        return f"{n_equal:,} of {n_lines:,} translations are empty; {ADVICE}"
    return f"{n_equal:,} of {n_lines:,} translations are {shorten(most_common)!r}; {ADVICE}"
