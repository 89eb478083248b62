"""Public corpora on the command line of `nmtkit new`."""

import re
from collections.abc import Sequence

from nmtkit.sources.catalog import load_catalog
from nmtkit.sources.dataset import HubSource, latest_revision
from nmtkit.sources.opus import OPUS_API, listed_corpora
from nmtkit.sources.parallel import OPUS, find_corpus
from nmtkit.sources.source import Source
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import TREE, Language
from nmtkit.utils.section import did_you_mean

HUB = re.compile(r"hub:([A-Za-z0-9._-]+/[A-Za-z0-9._-]+)(?::([A-Za-z0-9._-]+))?")
DEFAULT_SUBSET = "default"  # of data sets of the Hub that have only one
TRAIN = "train"
MAX_LISTED = 20  # corpora of OPUS in a message


def corpus_languages(
    names: Sequence[str], src_lang: str | None, tgt_lang: str | None
) -> tuple[Language, Language]:
    """Return the languages of public corpora, if no other text shows them.

    Args:
        src_lang: The source language, if the user named it.
        tgt_lang: The target language, if the user named it.

    Raises:
        UserError: They are not known.
    """
    if src_lang is not None and tgt_lang is not None:
        return Language.of(src_lang), Language.of(tgt_lang)
    catalog = load_catalog()
    for name in names:
        if name in catalog.corpora and src_lang is None and tgt_lang is None:
            pairs = catalog.pairs(name)
            if len(pairs) == 1 and TREE not in pairs[0]:
                return pairs[0]
    raise UserError(
        f"the languages of {names[0]} are not known; pass --src-lang and --tgt-lang, such as "
        "--src-lang de --tgt-lang en"
    )


def public_corpus(
    name: str, src_lang: Language, tgt_lang: Language, opus_api: str | None = OPUS_API
) -> Source | str:
    """Return the corpus of a name as a recipe has it.

    Args:
        name: A name of the catalog, of OPUS (opus:TED2020/v1) or of the Hub (hub:OWNER/NAME).
        opus_api: The address that lists the corpora of OPUS; None: without network.

    Raises:
        UserError: There is no such corpus in these languages.
    """
    hub = HUB.fullmatch(name)
    if hub is not None:
        repository, subset = hub.groups()
        return HubSource(
            huggingface=repository,
            subset=subset or DEFAULT_SUBSET,
            split=TRAIN,
            revision=latest_revision(repository),
        )
    if name.startswith("opus:") and not re.fullmatch(OPUS, name):
        listed = None if opus_api is None else listed_corpora(src_lang, tgt_lang, opus_api)
        if listed is None:
            available = "https://opus.nlpl.eu lists them"
        else:
            shown = ", ".join(listed[:MAX_LISTED]) or "none"
            available = f"for {src_lang}-{tgt_lang}, OPUS has {shown}"
            if len(listed) > MAX_LISTED:
                available += f" and {len(listed) - MAX_LISTED:,} smaller ones"
        raise UserError(
            f"{name!r} does not name a corpus of OPUS{did_you_mean(name, listed or [])}; pass its "
            f"name and version, such as opus:TED2020/v1 ({available})"
        )
    if name.startswith("hub:"):
        raise UserError(
            f"{name!r} does not name a data set of the Hub; pass hub:OWNER/NAME or "
            "hub:OWNER/NAME:SUBSET"
        )
    find_corpus(name, src_lang, tgt_lang)  # refuses a name that does not exist
    return name
