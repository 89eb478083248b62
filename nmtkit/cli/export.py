"""nmtkit export: a bundle's model in the format of another tool, and how text goes into it."""

import shutil
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from nmtkit.cli.options import FORMAT, command, saying, tell
from nmtkit.errors import UserError
from nmtkit.files import whole_folder

ExportFormat = Literal["ctranslate2", "huggingface"]
README: dict[str, str] = tomllib.loads(
    Path(__file__).with_name("export.toml").read_text(encoding="utf-8")
)


@command("nmtkit export BUNDLE exported --format ctranslate2")
def export(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    how: Annotated[ExportFormat, saying(FORMAT, "ctranslate2 or huggingface.")],
) -> None:
    import torch

    from nmtkit.corpus.prepared import PreparedCorpus
    from nmtkit.corpus.sentencepieces import SentencePieceSubword
    from nmtkit.decoding.bundle import open_bundle
    from nmtkit.decoding.lines import MAX_SUBWORDS
    from nmtkit.decoding.torch_engine import load_model
    from nmtkit.interchange import ctranslate2, huggingface

    with whole_folder(folder) as draft:
        opened = open_bundle(bundle)
        text, decoding = opened.text, opened.decoding
        if text.tgt.is_of_trees:
            raise UserError(
                f"{bundle} is a parser: only nmtkit makes trees of its output and the words of the "
                "source; use `nmtkit translate --bundle`"
            )
        model, n_tokens = load_model(opened, torch.device("cpu")), text.subword.n_tokens
        if how == "ctranslate2":
            unused = (f"<unused {row}>" for row in range(n_tokens, opened.description.n_rows))
            pieces = [*text.subword.pieces(range(n_tokens)), *unused]
            ctranslate2.write_model(draft, model, pieces, "float32", 2 * MAX_SUBWORDS)
        else:
            huggingface.write_model(draft, model, n_tokens, decoding, 2 * MAX_SUBWORDS)
            if isinstance(text.subword, SentencePieceSubword):
                langs = text.src.lang, text.tgt.lang
                huggingface.write_tokenizer(draft, text.subword, langs, opened.max_subwords)
        for path in PreparedCorpus(opened.artifact).files_of_a_bundle():
            shutil.copyfile(path, draft / path.name)
        sides = "\n".join(
            f"- {name}: {', '.join(f'{key} = {value}' for key, value in asdict(side).items())}"
            for name, side in (("source", text.src), ("target", text.tgt))
        )
        page = (README[how] + README["text"]).format(
            name=repr(folder.name), beam=decoding.beam_size, sides=sides, n=opened.max_subwords
        )
        (draft / "README.md").write_text(page, encoding="utf-8", newline="\n")
    tell(folder)
