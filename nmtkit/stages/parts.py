"""What a recipe's test sets and any other text share: they are translated part by part."""

from nmtkit import progress
from nmtkit.corpus.long_lines import MAX_CHARACTERS
from nmtkit.decoding.lines import Translation, Translator


def tell_pieces(translator: Translator, line: str, translation: Translation) -> None:
    """Warn of a line that was not translated at once."""
    if translation.n_pieces > 1:
        progress.say(
            f"translate: {line} is too long to be translated at once (more than "
            f"{translator.max_subwords:,} subwords or {MAX_CHARACTERS:,} characters); its "
            f"{translation.n_pieces:,} pieces were translated one by one"
        )
