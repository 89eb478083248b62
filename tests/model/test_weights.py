"""The listed weights are those that a Transformer has."""

from itertools import product

import pytest
from models import tiny

from nmtkit.model.transformer import Transformer
from nmtkit.model.weights import shapes


@pytest.mark.parametrize(
    ("norm", "positions", "tied", "bias"),
    list(
        product(["post", "pre"], ["sinusoid", "fairseq", "learned"], [True, False], [True, False])
    ),
)
def test_shapes_are_those_of_the_parameters(
    norm: str, positions: str, tied: bool, bias: bool
) -> None:
    config = tiny(
        norm=norm, positions=positions, tie_embeddings=tied, attention_bias=bias, d_k=5, d_v=3
    )
    parameters = Transformer(config, n_rows=11).named_parameters()
    expected = {name: tuple(parameter.shape) for name, parameter in parameters}
    listed = list(shapes(config, n_rows=11))
    assert dict(listed) == expected
    assert len(listed) == len(expected)
