"""Our own engine: the model and the search in torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from nmtkit.decoding.bundle import Bundle
from nmtkit.decoding.engine import MAX_LINES, Forced, Hypothesis, lines_per_minute
from nmtkit.decoding.forced import force_ids
from nmtkit.decoding.lines import max_subwords
from nmtkit.decoding.translator import translate_ids
from nmtkit.fast.accelerate import accelerate, cast
from nmtkit.model.transformer import Transformer
from nmtkit.model.weights import count_parameters, load_weights
from nmtkit.recipe import DecodingConfig


@dataclass(frozen=True)
class TorchEngine:
    """An `Engine` that runs our model."""

    name: ClassVar[str] = "torch"
    model: Transformer
    n_tokens: int  # of the vocabulary; rows of the output matrix beyond it are never produced
    others: tuple[Transformer, ...] = ()  # of an ensemble

    @classmethod
    def load(
        cls,
        bundle: Bundle,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        others: Sequence[Bundle] = (),
    ) -> "TorchEngine":
        """Load the model of `bundle`, and those of the `others` of an ensemble.

        They compute in `dtype`.

        Raises:
            UserError: The weights of one are damaged, or are not those of its model.
        """
        models = [cast(accelerate(load_model(each, device)), dtype) for each in (bundle, *others)]
        return cls(models[0], bundle.text.subword.n_tokens, tuple(models[1:]))

    @property
    def device(self) -> str:
        """Return where it runs, as `Engine` says."""
        return self.model.output_matrix.device.type

    def lines_per_minute(self, beam_size: int) -> int:
        """Estimate its speed, as `Engine` says."""
        if self.device != "cpu":
            return MAX_LINES
        n_weights = sum(
            count_parameters(each.config, len(each.output_matrix)).total
            for each in (self.model, *self.others)
        )
        return lines_per_minute(n_weights, beam_size, torch.get_num_threads())

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        decoding: DecodingConfig,
        n_best: int,
        progress: Callable[[int], None],
    ) -> list[list[Hypothesis]]:
        """Translate sentences, as `Engine` says."""
        return translate_ids(
            self.model,
            sources,
            decoding,
            n_tokens=self.n_tokens,
            n_best=n_best,
            progress=progress,
            others=self.others,
        )

    def force(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], *, align: bool
    ) -> list[Forced]:
        """Rate given translations, as `Engine` says."""
        return force_ids(self.model, sources, targets, align=align, others=self.others)


def load_model(bundle: Bundle, device: torch.device) -> Transformer:
    """Load the model of `bundle` as it was trained.

    Raises:
        UserError: Its weights are damaged, or are not those of the model.
    """
    weights = bundle.verified_weights()
    config = bundle.description.config
    if config.positions != "learned":
        config = config.model_copy(update={"max_positions": max_subwords(config)})
    with torch.device(device):
        model = Transformer(config, bundle.description.n_rows)
    load_weights(model, weights)
    return model
