"""Tags of target languages, such as ">>deu<<" in front of a line for a multilingual model."""

import re

# As in the vocabularies of OPUS-MT: >>deu<<, >>sr_Latn<<, >>pt_BR<<, >>ca@valencia<<. Other text
# between these marks is a quotation.
_TAG = re.compile(r"\s*(>>[A-Za-z]{2,3}(?:[-_@][A-Za-z0-9]{1,8})*<<)")


def split_tag(line: str) -> tuple[str, str]:
    """Split a source line into its language tag, "" if it has none, and the text after it."""
    match = _TAG.match(line)
    return (match[1], line[match.end() :]) if match else ("", line)
