"""The corpora that OPUS lists for two languages."""

import json
import re
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from nmtkit.utils.language import Language

OPUS_API = "https://opus.nlpl.eu/opusapi/"
TIMEOUT_S = 10.0
MAX_BYTES = 2**22  # of an answer
# Name and version, such as TED2020/v1.
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*"


def listed_corpora(src_lang: Language, tgt_lang: Language, api: str = OPUS_API) -> list[str] | None:
    """Return the latest corpora that OPUS has for two languages, the largest first.

    Args:
        api: The address that is asked.

    Returns:
        Names such as opus:TED2020/v1, or None if OPUS does not answer.
    """
    query = urlencode(
        {
            "source": str(src_lang),
            "target": str(tgt_lang),
            "preprocessing": "moses",
            "version": "latest",
        }
    )
    request = Request(f"{api}?{query}", headers={"User-Agent": "nmtkit"})  # noqa: S310 - a constant
    try:
        with urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
            answer = json.loads(response.read(MAX_BYTES))
        sizes = {}
        for corpus in answer["corpora"]:
            sizes[f"{corpus['corpus']}/{corpus['version']}"] = int(corpus["alignment_pairs"] or 0)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # The answer is printed: anything but a name is skipped.
    names = [name for name in sizes if re.fullmatch(NAME, name)]
    return [f"opus:{name}" for name in sorted(names, key=lambda name: -sizes[name])]
