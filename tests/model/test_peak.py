"""The speed of bfloat16 against the processor's instructions."""

import torch

from nmtkit.model.peak import bfloat16_gain


def test_bfloat16_gains_only_on_processors_with_instructions_for_it() -> None:
    gain = bfloat16_gain(32, 0.02)
    assert (gain > 0) == torch.ops.mkldnn._is_mkldnn_bf16_supported()
