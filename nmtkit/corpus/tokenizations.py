"""How both sides of a corpus are tokenized: a file in the prepared corpus and in each bundle."""

from dataclasses import asdict
from pathlib import Path

from nmtkit.corpus.moses import Tokenization
from nmtkit.files import Record, read_record, write_json
from nmtkit.store import Artifact

TOKENIZATION = "tokenization.json"


class Tokenizations(Record):
    """How raw text of each side becomes tokens."""

    src: Tokenization
    tgt: Tokenization

    def save(self, directory: Path) -> None:
        """Write what `load` reads."""
        write_json(directory / TOKENIZATION, {"src": asdict(self.src), "tgt": asdict(self.tgt)})

    @classmethod
    def load(cls, artifact: Artifact) -> "Tokenizations":
        """Read what `save` wrote."""
        return read_record(artifact.file(TOKENIZATION), cls)
