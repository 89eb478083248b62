"""Public corpora on the command line of `nmtkit new`."""

import re
from collections.abc import Sequence
from pathlib import Path

from nmtkit.sources.catalog import load_catalog
from nmtkit.sources.dataset import HubSource, latest_revision
from nmtkit.sources.opus import NAME, OPUS_API, listed_corpora
from nmtkit.sources.parallel import OPUS, find_corpus
from nmtkit.sources.sacrebleu_set import is_set
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
        UserError: They are not known, or there is no corpus of one of the names.
    """
    src = Language.of(src_lang) if src_lang else None
    tgt = Language.of(tgt_lang) if tgt_lang else None
    if src is not None and tgt is not None:
        return src, tgt
    catalog = load_catalog()
    for name in names:
        _check_name(name)
        if name not in catalog.corpora:
            continue  # other collections do not list the languages of a corpus
        directions = []
        for first, second in catalog.pairs(name):
            for direction in ((first, second), (second, first)):
                if src in (None, direction[0]) and tgt in (None, direction[1]):
                    directions.append(direction)
        is_clear = len(directions) == 1 or (len(directions) == 2 and src is tgt is None)
        if is_clear and TREE not in directions[0]:
            return directions[0]
        pairs = ", ".join(catalog.corpora[name].texts)
        raise UserError(f"{name} has {pairs}; pass --src-lang and --tgt-lang")
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
    _check_name(name)
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
        similar, available = opus_hints(name, src_lang, tgt_lang, opus_api)
        raise UserError(
            f"{name!r} does not name a corpus of OPUS{similar}; pass its name and version, such as "
            f"opus:TED2020/v1 ({available})"
        )
    find_corpus(name, src_lang, tgt_lang)  # refuses a corpus without these languages
    return name


def opus_hints(
    name: str, src_lang: Language, tgt_lang: Language, api: str | None = OPUS_API
) -> tuple[str, str]:
    """Return hints for a name that OPUS does not have: similar names, and what it has.

    Args:
        api: See `public_corpus`.
    """
    listed = None if api is None else listed_corpora(src_lang, tgt_lang, api)
    if listed is None:
        return "", "https://opus.nlpl.eu lists them"
    if not listed:
        pair = f"{src_lang}-{tgt_lang}"
        return "", f"it lists none for {pair}; it writes languages as de, pt_BR or zh_CN"
    shown = ", ".join(listed[:MAX_LISTED])
    available = f"for {src_lang}-{tgt_lang}, OPUS has {shown}"
    if len(listed) > MAX_LISTED:
        available += f" and {len(listed) - MAX_LISTED:,} smaller ones"
    return did_you_mean(name, listed), available


def _check_name(name: str) -> None:
    """Refuse a name that is in none of the collections.

    Raises:
        UserError: The name, with similar ones.
    """
    catalog = load_catalog()
    if name in catalog.corpora or name.startswith("opus:") or HUB.fullmatch(name) or is_set(name):
        return
    if name.startswith("hub:"):
        raise UserError(
            f"{name!r} does not name a data set of the Hub; pass hub:OWNER/NAME or "
            "hub:OWNER/NAME:SUBSET"
        )
    if name and Path(name).exists():
        raise UserError(
            f"--corpus takes the name of a public corpus, and {name} is a file or folder of yours; "
            "pass it as --src, --tsv, --csv, --jsonl, --tmx, --opus-zip or --dataset"
        )
    hint = did_you_mean(name, catalog.corpora)
    collection, colon, rest = name.rpartition(":")
    if colon and collection.lower() in ("hub", "opus"):
        hint = did_you_mean(name, [f"{collection.lower()}:{rest}"])
    elif re.fullmatch(NAME, name):
        hint = f" (did you mean 'opus:{name}' or 'hub:{name}'?)"
    raise UserError(
        f"unknown corpus {name!r}{hint}; run `nmtkit corpora` to list the catalog, or pass "
        "opus:NAME/VERSION, hub:OWNER/NAME or a test set of sacreBLEU, such as wmt20"
    )
