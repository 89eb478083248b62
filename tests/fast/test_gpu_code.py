"""The code that torch generates for a GPU, of all compiled functions of a training step.

`tests/fake_gpu.py` explains how this works without a GPU. `python tests/gpu_code.py --table` runs
all combinations of models, precisions and GPUs; a few are enough to find a fault. Counts are in
`pipelines/results/gpu-code_2026-11-28.md`.
"""

import importlib.util
import shutil
from typing import Any

import pytest
import torch
from gpu_code import in_process

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton"),
    pytest.mark.skipif(torch.version.cuda is not None, reason="needs a torch without CUDA"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
]

MAX_KERNELS = 700  # of a micro-batch


@pytest.mark.parametrize(
    ("model", "dtype", "capability"),
    [
        ("base", "bfloat16", "9.0"),
        ("big", "float16", "7.5"),
        ("base", "float32", "8.0"),
    ],
)
def test_generated_code(model: str, dtype: str, capability: str) -> None:
    found: dict[str, Any] = in_process(model, dtype, capability)
    assert found["host"] == []
    assert found["with_gaps"] == []
    assert found["repeated"] == []
    assert found["n_draws"] == found["n_dropouts"]  # the backward pass draws nothing
    assert found["position_bytes"] == pytest.approx(found["estimated_bytes"], rel=0.03)


def test_kernels_of_micro_batch() -> None:
    assert in_process("base", "bfloat16", "9.0")["kernels"] <= MAX_KERNELS


@pytest.mark.parametrize(
    ("fault", "check"), [("gaps", "with_gaps"), ("host", "host"), ("random", "repeated")]
)
def test_fault_is_found(fault: str, check: str) -> None:
    assert in_process("base", "bfloat16", "9.0", fault)[check] != []


def test_recomputed_dropout_is_found() -> None:
    found = in_process("base", "bfloat16", "9.0", "recompute")
    assert found["n_draws"] > found["n_dropouts"]


@pytest.mark.parametrize(
    ("fault", "error"), [("break", "Unsupported"), ("read", "DataDependentOutputException")]
)
def test_fault_stops_generation(fault: str, error: str) -> None:
    with pytest.raises(RuntimeError, match=error):
        in_process("base", "bfloat16", "9.0", fault)
