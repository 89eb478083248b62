"""nmtkit import: a model that fairseq trained, as a bundle."""

from pathlib import Path
from typing import Annotated, Literal

from nmtkit.cli.options import Lowercase, argument, check_output, command, option, print_path
from nmtkit.config.loading import validate
from nmtkit.config.recipe import PAPERS_DECODING
from nmtkit.store.files import whole_folder
from nmtkit.store.manifests import write_manifest
from nmtkit.store.records import sha256_of
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.section import Section


class _Corpus(Section):
    """How the text of the model was prepared, by the keys of [corpus]."""

    tokenizer: Literal["moses", "none"] | None = None  # None: Moses for BPE alone
    normalize_punctuation: bool = False
    aggressive_hyphens: bool | None = None  # None: as the dictionary shows


class _Recipe(Section):
    corpus: _Corpus = _Corpus()


@command("nmtkit import model.pt bundle --codes bpecodes --lang en-de")
def import_model(
    checkpoint: Annotated[Path, argument("CHECKPOINT", "A fairseq checkpoint.")],
    folder: Annotated[Path, argument("DIR", "A new folder.")],
    codes: Annotated[
        Path, option("FILE", "BPE codes of subword-nmt or fastBPE, or a sentencepiece model.")
    ],
    lang: Annotated[str, option("LANG", "The languages, such as en-de.")],
    lowercase: Lowercase = False,
    overrides: Annotated[
        list[str] | None,
        option(
            "SECTION.KEY=VALUE",
            "How text was prepared, as a recipe says it: corpus.tokenizer=moses or none (default "
            "for sentencepiece), corpus.normalize_punctuation=true, and "
            "corpus.aggressive_hyphens=true or false, by default as the dictionary shows.",
            "--set",
        ),
    ] = None,
) -> None:
    from nmtkit.corpus.moses import Tokenization, Tokenizations
    from nmtkit.corpus.subword import BpeSubword
    from nmtkit.decoding.bundle import write_bundle
    from nmtkit.interchange.fairseq import read_dictionary, read_model, read_subword

    langs = Language.pair_of(lang)
    how = validate(_Recipe, {}, overrides or []).corpus
    check_output("DIR", folder)
    with whole_folder(folder) as draft:
        model, weights = read_model(checkpoint, [lang.tag for lang in langs])
        dictionaries = [checkpoint.with_name(f"dict.{lang}.txt") for lang in langs]
        (pieces, n_rows), other = map(read_dictionary, dictionaries)
        if (pieces, n_rows) != other:
            raise UserError(
                f"{dictionaries[0]} and {dictionaries[1]} differ; only a model with one dictionary "
                "for both sides (--joined-dictionary) can be imported"
            )
        subword = read_subword(codes, pieces)
        if n_rows != model.n_rows:
            raise UserError(
                f"{dictionaries[0]} has {n_rows:,} entries with the four symbols, but "
                f"the model in {checkpoint} has {model.n_rows:,}; give the dictionary that it was "
                "trained with"
            )
        # What tokenizer.perl -a makes of hyphens.
        hyphens = "@-@" in pieces if how.aggressive_hyphens is None else how.aggressive_hyphens
        tokenizer = how.tokenizer or ("moses" if isinstance(subword, BpeSubword) else "none")
        src, tgt = (
            Tokenization(lang.code, how.normalize_punctuation, lowercase, tokenizer, hyphens)
            for lang in langs
        )
        subword.save(draft)
        Tokenizations(src=src, tgt=tgt).save(draft)
        write_bundle(draft, [], model, PAPERS_DECODING, weights)
        origin = {path.name: sha256_of(path) for path in {checkpoint, codes, *dictionaries}}
        write_manifest(draft, {"kind": "import", "depends_on": {"fairseq": origin}})
    print_path(folder)
