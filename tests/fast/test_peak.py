"""The speed of bfloat16 against the processor's instructions."""

import pytest
import torch

from nmtkit.fast import peak
from nmtkit.fast.peak import measured_peak, peak_dtype


def test_peak_of_bfloat16_is_that_of_float32_without_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpu, multiplied = torch.device("cpu"), []

    def fastest(width: int, *rest: object) -> float:
        multiplied.append(rest[-1])
        return float(width)

    monkeypatch.setattr(peak, "_fastest", fastest)
    for has_it, expected in ((False, torch.float32), (True, torch.bfloat16)):
        monkeypatch.setattr(peak, "_has_bfloat16", lambda has_it=has_it: has_it)
        multiplied.clear()
        measured_peak(cpu, 1.0, torch.bfloat16)
        assert {*multiplied, peak_dtype(cpu, torch.bfloat16)} == {expected}
        assert peak_dtype(torch.device("cuda"), torch.bfloat16) == torch.bfloat16
