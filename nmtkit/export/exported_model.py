"""A bundle in the format of another library, with a model card, and its upload to the hub."""

import shutil
from pathlib import Path
from typing import Literal

import torch

from nmtkit import __version__
from nmtkit.config.model import DecodingConfig
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.corpus.subword import Subword
from nmtkit.corpus.vocabulary_map import VOCABULARY_MAP
from nmtkit.decoding.bundle import Bundle, open_bundle
from nmtkit.decoding.text_translator import MAX_SUBWORDS
from nmtkit.decoding.torch_engine import load_model
from nmtkit.export.model_card import bundle_origin, write_card
from nmtkit.interchange import ctranslate2, huggingface
from nmtkit.interchange.huggingface_tokenizer import write_tokenizer
from nmtkit.interchange.names import check_symbols
from nmtkit.model.transformer import Transformer
from nmtkit.store.code_version import warn_of_other_code
from nmtkit.store.files import whole_folder
from nmtkit.utils.errors import UserError

ExportFormat = Literal["ctranslate2", "huggingface"]
# The library that loads models of a format, as the hub calls it.
LIBRARIES = {"ctranslate2": "ctranslate2", "huggingface": "transformers"}


def export_bundle(path: Path, folder: Path, format_: ExportFormat, repository: str | None) -> None:
    """Write a new folder with the model of a bundle, its text processing and a model card.

    Args:
        repository: The repository of the Hugging Face hub that the folder will be uploaded to.

    Raises:
        UserError: The folder exists, or the format cannot represent the bundle.
    """
    with whole_folder(folder) as draft:
        bundle = open_bundle(path)
        warn_of_other_code([bundle.artifact])
        if bundle.text.tgt.has_trees:
            raise UserError(
                f"{path} is a parser, and only nmtkit can build trees from its output; use "
                "`nmtkit translate --bundle`"
            )
        write_model_of_bundle(draft, format_, bundle)
        vocabulary_map = bundle.vocabulary_map()
        if format_ == "ctranslate2" and vocabulary_map is not None:
            pieces = bundle.text.subword.pieces(range(bundle.text.subword.n_tokens))
            vocabulary_map.write(draft / VOCABULARY_MAP, pieces)
        origin = bundle_origin(bundle.artifact.path.resolve())
        write_card(draft, bundle, LIBRARIES[format_], origin, folder.name, repository)
        # Other tools need the subword model and the tokenization to encode raw text.
        for file in PreparedCorpus(bundle.artifact).bundle_files():
            shutil.copyfile(file, draft / file.name)


def write_model_of_bundle(folder: Path, format_: ExportFormat, bundle: Bundle) -> None:
    """Write the model of a bundle and its vocabulary to an existing folder."""
    write_exported_model(
        folder,
        format_,
        load_model(bundle, torch.device("cpu")),
        bundle.text.subword,
        bundle.decoding,
        bundle.max_subwords,
        n_positions=2 * MAX_SUBWORDS,
        langs=(bundle.text.src.lang, bundle.text.tgt.lang),
    )


def write_exported_model(
    folder: Path,
    format_: ExportFormat,
    model: Transformer,
    subword: Subword,
    decoding: DecodingConfig,
    max_subwords: int,
    n_positions: int,
    langs: tuple[str, str],
) -> None:
    """Write a model and its vocabulary in the format of another library.

    Args:
        subword: The vocabulary. Further rows of the embeddings are never produced.
        decoding: Default settings of the search.
        max_subwords: Maximum number of subwords of a source, EOS included.
        n_positions: Number of positions that the model can read or write.
        langs: Codes of the languages of source and target.

    Raises:
        UserError: The format cannot represent the model or its vocabulary.
    """
    n_tokens = subword.n_tokens
    n_rows = len(model.output_matrix)
    if format_ == "ctranslate2":
        # Rows without a piece are never produced, but CTranslate2 needs their names.
        check_symbols(subword, "models of CTranslate2")
        pieces = subword.pieces(range(n_tokens))
        pieces += [f"<unused {row}>" for row in range(n_tokens, n_rows)]
        ctranslate2.write_model(folder, model, pieces, "float32", n_positions)
    else:
        write_tokenizer(folder, subword, model.config, n_rows, max_subwords, langs)
        huggingface.write_model(folder, model, n_tokens, decoding, max_subwords, n_positions)


def push_to_hub(folder: Path, repository: str) -> None:
    """Upload a folder to a repository of the Hugging Face hub. A new one is private.

    Args:
        folder: The folder; it is kept in any case.
        repository: The repository, as OWNER/NAME.

    Raises:
        UserError: The hub cannot be reached, or refuses the upload.
    """
    from huggingface_hub import HfApi, get_token

    hub = HfApi(library_name="nmtkit", library_version=__version__)
    try:
        if get_token() is None:
            raise UserError("no token is set")
        # Existing repositories keep their visibility.
        created = hub.create_repo(repository, private=True, exist_ok=True)
        hub.upload_folder(repo_id=created.repo_id, folder_path=folder)
    except Exception as error:  # noqa: BLE001 - from any of the libraries that the hub's uses
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UserError(
            f"{folder} is complete, but could not be uploaded to {hub.endpoint}/{repository} "
            f"({reason}); run `hf auth login` or set HF_TOKEN, then retry with "
            f"`hf upload {repository} {folder}`"
        ) from None
