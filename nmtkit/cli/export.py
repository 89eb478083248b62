"""nmtkit export: a bundle's model in the format of another tool, and how text goes into it."""

import shutil
from pathlib import Path
from typing import Annotated, Literal

from nmtkit import __version__
from nmtkit.cli.options import argument, check_output, command, option, print_path
from nmtkit.store.files import whole_folder
from nmtkit.utils.errors import UserError

ExportFormat = Literal["ctranslate2", "huggingface"]


@command("nmtkit export BUNDLE exported --format huggingface")
def export(
    bundle: Annotated[Path, argument("BUNDLE", "A bundle.")],
    folder: Annotated[Path, argument("DIR", "A new folder.")],
    how: Annotated[ExportFormat, option("FORMAT", "ctranslate2 or huggingface.", "--format")],
    repository: Annotated[
        str | None,
        option(
            "OWNER/NAME",
            "Also upload it to this repository of the Hugging Face hub, which is private if it is "
            "new; the token is that of `hf auth login`, or HF_TOKEN.",
            "--push",
        ),
    ] = None,
) -> None:
    import torch

    from nmtkit.corpus.prepared import PreparedCorpus
    from nmtkit.decoding.bundle import open_bundle
    from nmtkit.decoding.lines import MAX_SUBWORDS
    from nmtkit.decoding.torch_engine import load_model
    from nmtkit.interchange import ctranslate2, huggingface
    from nmtkit.interchange.names import check_symbols
    from nmtkit.reporting.model_card import write_card
    from nmtkit.stages.pipeline import warn_of_other_code

    check_output("DIR", folder)
    with whole_folder(folder) as draft:
        opened = open_bundle(bundle)
        warn_of_other_code([opened.artifact])
        text, decoding = opened.text, opened.decoding
        if text.tgt.is_of_trees:
            raise UserError(
                f"{bundle} is a parser: only nmtkit makes trees of its output and the words of the "
                "source; use `nmtkit translate --bundle`"
            )
        model, n_tokens = load_model(opened, torch.device("cpu")), text.subword.n_tokens
        longest, n_rows = opened.max_subwords, opened.description.n_rows
        if how == "ctranslate2":
            check_symbols(text.subword, "models of CTranslate2")
            unused = (f"<unused {row}>" for row in range(n_tokens, n_rows))
            pieces = [*text.subword.pieces(range(n_tokens)), *unused]
            ctranslate2.write_model(draft, model, pieces, "float32", 2 * MAX_SUBWORDS)
            write_card(draft, opened, "ctranslate2", folder.name, repository)
        else:
            config = opened.description.config
            huggingface.write_tokenizer(draft, text.subword, config, n_rows, longest)
            huggingface.write_model(draft, model, n_tokens, decoding, longest, 2 * MAX_SUBWORDS)
            write_card(draft, opened, "transformers", folder.name, repository)
        for path in PreparedCorpus(opened.artifact).files_of_a_bundle():
            shutil.copyfile(path, draft / path.name)
    print_path(folder)
    if repository is not None:
        _push(folder, repository)


def _push(folder: Path, repository: str) -> None:
    """Upload a folder, which stays where it is in any case."""
    from huggingface_hub import HfApi, get_token

    hub = HfApi(library_name="nmtkit", library_version=__version__)
    try:
        if get_token() is None:
            raise UserError("there is no token")
        made = hub.create_repo(repository, private=True, exist_ok=True)
        hub.upload_folder(repo_id=made.repo_id, folder_path=folder)
    except Exception as error:  # noqa: BLE001 - of any of the libraries below it
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UserError(
            f"{folder} is complete, but {hub.endpoint}/{repository} did not take it ({reason}); "
            f"after `hf auth login`, or with HF_TOKEN set, `hf upload {repository} {folder}` tries "
            "again"
        ) from None
