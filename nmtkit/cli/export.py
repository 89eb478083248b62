"""nmtkit export: a bundle's model in the format of another tool, and how text goes into it."""

import shutil
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmtkit.cli.options import FORMAT, command, tell
from nmtkit.errors import UserError
from nmtkit.files import whole_folder

if TYPE_CHECKING:
    from nmtkit.decoding.bundle import Bundle

README = "README.md"
TEXT = """
Raw text becomes tokens by normalize-punctuation.perl, lower-casing and tokenizer.perl of Moses,
each if it is named here ("none" only collapses spaces):

{sides}

Tokens become subwords by `subword-nmt apply-bpe -c codes.bpe` or by `sentencepiece.model`. The way
back is joining subwords, then detokenizer.perl. A source has at most {n:,} subwords. This library
divides by length ** alpha, not by ((5 + length) / 6) ** alpha.
"""


class ExportFormat(StrEnum):
    """Whose format."""

    CTRANSLATE2 = "ctranslate2"
    HUGGINGFACE = "huggingface"


@command("nmtkit export BUNDLE exported --format ctranslate2")
def export(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    how: Annotated[ExportFormat, FORMAT],
) -> None:
    """Write the model of a bundle, and the files that its text needs, to a new folder."""
    from nmtkit.corpus.prepared import PreparedCorpus
    from nmtkit.decoding.bundle import open_bundle

    with whole_folder(folder) as draft:
        opened = open_bundle(bundle)
        if opened.text.tgt.is_of_trees:
            raise UserError(
                f"{bundle} is a parser: only nmtkit makes trees of its output and the words of the "
                "source; use `nmtkit translate --bundle`"
            )
        write = _write_ctranslate2 if how == ExportFormat.CTRANSLATE2 else _write_huggingface
        page = write(opened, draft, folder.name)
        for path in PreparedCorpus(opened.artifact).files_of_a_bundle():
            shutil.copyfile(path, draft / path.name)
        sides = "\n".join(
            f"- {name}: {', '.join(f'{key} = {value}' for key, value in asdict(side).items())}"
            for name, side in (("source", opened.text.src), ("target", opened.text.tgt))
        )
        page += TEXT.format(sides=sides, n=opened.max_subwords)
        (draft / README).write_text(page, encoding="utf-8", newline="\n")
    tell(folder)


def _write_ctranslate2(bundle: "Bundle", folder: Path, name: str) -> str:
    """Write a model, and return the beginning of its page."""
    import torch

    from nmtkit.decoding.lines import MAX_SUBWORDS
    from nmtkit.decoding.torch_engine import load_model
    from nmtkit.interchange.ctranslate2 import write_model

    subword, n_rows = bundle.text.subword, bundle.description.n_rows
    pieces = subword.pieces(range(subword.n_tokens))
    if len(set(pieces)) < len(pieces):
        raise UserError(
            f"the vocabulary of {bundle.artifact.path} lists a subword twice, which CTranslate2 "
            "can't tell apart; use --format huggingface"
        )
    pieces += [f"<unused {row}>" for row in range(subword.n_tokens, n_rows)]
    model = load_model(bundle, torch.device("cpu"))
    write_model(folder, model, pieces, "float32", 2 * MAX_SUBWORDS)
    return f"""# A model for CTranslate2
```python
import ctranslate2

translator = ctranslate2.Translator({name!r})
source = [*subwords, "</s>"]
result = translator.translate_batch([source], beam_size={bundle.decoding.beam_size})
result[0].hypotheses[0]  # subwords
```
"""


def _write_huggingface(bundle: "Bundle", folder: Path, name: str) -> str:
    """Write a model, and return the beginning of its page."""
    import torch

    from nmtkit.decoding.lines import MAX_SUBWORDS
    from nmtkit.decoding.torch_engine import load_model
    from nmtkit.interchange.huggingface import write_model

    model, n_tokens = load_model(bundle, torch.device("cpu")), bundle.text.subword.n_tokens
    write_model(folder, model, n_tokens, bundle.decoding, 2 * MAX_SUBWORDS)
    return f"""# A model for transformers
```python
import torch
import transformers

model = transformers.MarianMTModel.from_pretrained({name!r})
output = model.generate(torch.tensor([[*ids, 2]]))  # 2 is the end symbol
```

The logits are those of nmtkit but for rounding (1e-5). An id is the number of a subword's line in
`vocabulary.tsv`, from 0, or its id in `sentencepiece.model`. Input that is padded needs an
`attention_mask`.
"""
