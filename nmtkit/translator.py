"""A bundle, ready to translate: the class that Python users and the commands share."""

from pathlib import Path

from nmtkit.decoding import lines
from nmtkit.decoding.bundle import open_bundle
from nmtkit.machine import RUNS, Machine
from nmtkit.recipe_file import override_decoding


class Translator(lines.Translator):
    """Translates raw text with a bundle, as `nmtkit translate --bundle` does."""

    def __init__(
        self,
        bundle: str | Path,
        *,
        device: str = "auto",
        beam_size: int | None = None,
        length_penalty: float | None = None,
    ) -> None:
        """Open a bundle and load its model.

        Args:
            bundle: The folder.
            device: auto, cpu, cuda, cuda:1, ...
            beam_size: In place of the bundle's.
            length_penalty: The paper's alpha, in place of the bundle's.

        Raises:
            UserError: The folder is not a bundle, or a value is out of range.
        """
        from nmtkit.decoding.torch_engine import TorchEngine

        opened = open_bundle(Path(bundle))
        engine = TorchEngine.load(opened, Machine(RUNS, device=device).torch_device())
        decoding = override_decoding(opened.decoding, beam_size, length_penalty)
        super().__init__(opened.text, engine, decoding, opened.max_subwords)
