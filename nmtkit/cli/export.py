"""nmtkit export: a bundle's model in the format of another tool, and how text goes into it."""

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from nmtkit.cli.options import FORMAT, command, saying, tell
from nmtkit.errors import UserError
from nmtkit.files import whole_folder

TEXT = """
Raw text becomes tokens by normalize-punctuation.perl, lower-casing and tokenizer.perl of Moses,
each if it is named here ("none" only collapses spaces):

{sides}

Tokens become subwords by `subword-nmt apply-bpe -c codes.bpe` or by `sentencepiece.model`. The way
back is joining subwords, then detokenizer.perl. A source has at most {n:,} subwords. This library
divides by length ** alpha, not by ((5 + length) / 6) ** alpha.
"""


ExportFormat = Literal["ctranslate2", "huggingface"]
USAGE: dict[ExportFormat, str] = {
    "ctranslate2": """# A model for CTranslate2
```python
import ctranslate2

translator = ctranslate2.Translator({name})
source = [*subwords, "</s>"]
result = translator.translate_batch([source], beam_size={beam})
result[0].hypotheses[0]  # subwords
```
""",
    "huggingface": """# A model for transformers
```python
import torch
import transformers

model = transformers.MarianMTModel.from_pretrained({name})
output = model.generate(torch.tensor([[*ids, 2]]))  # 2 is the end symbol
```

An id is the number of a subword's line in `vocabulary.tsv`, from 0, or its id in
`sentencepiece.model`, which `transformers.MarianTokenizer.from_pretrained({name})` loads. Input
that is padded needs an `attention_mask`.
""",
}


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
        page = (USAGE[how] + TEXT).format(
            name=repr(folder.name), beam=decoding.beam_size, sides=sides, n=opened.max_subwords
        )
        (draft / "README.md").write_text(page, encoding="utf-8", newline="\n")
    tell(folder)
