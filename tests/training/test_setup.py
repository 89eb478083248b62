"""What is said as training begins."""

import pytest
import torch
from test_loop import CPU, config_of, corpus, model_of

from nmtkit.training.acceleration import Acceleration
from nmtkit.training.distributed import Group
from nmtkit.training.setup import describe_setup
from nmtkit.training.trainer import Trainer

HALF = torch.bfloat16
FUSED = Acceleration(HALF, static=True)
NONE = Acceleration(HALF)


@pytest.mark.parametrize(
    ("how", "size", "accelerate", "said"),
    [
        (Acceleration(HALF, True, True, True), 4, "auto", "compiled; one CUDA graph"),
        (FUSED, 4, "auto", "not compiled: no C compiler|no CUDA graph: several processes"),
        (FUSED, 1, "compile", "1 of 4 GPUs (--processes 4 |no CUDA graph: --accelerate compile"),
        (NONE, 1, "none", "in rectangles|no CUDA graph: --accelerate none"),
        (NONE, 1, "auto", "in rectangles|graph: [model] d_k, d_v or attention_d"),
        (Acceleration(), 1, "auto", "float32, at most 75 tokens|in rectangles|graph: float32"),
    ],
)
def test_one_line_says_what_of_the_gpus_is_used_and_what_is_not(
    monkeypatch: pytest.MonkeyPatch, how: Acceleration, size: int, accelerate: str, said: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some GPU")
    group = Group(0, size, torch.device("cuda"))
    trainer = Trainer(model_of(), corpus(), config_of(), group, how, 75)
    line = describe_setup(trainer, accelerate)
    for part in ("parameters on ", "; Some GPU", *said.split("|")):
        assert part in line
    assert ("of 4 GPUs" in line) == (size < 4)


def test_nothing_is_said_of_gpus_on_a_cpu() -> None:
    trainer = Trainer(model_of(), corpus(), config_of(), Group(0, 1, CPU), Acceleration(), 75)
    line = describe_setup(trainer, "auto")
    assert line.endswith("parameters on cpu, float32, at most 75 tokens a side of a micro-batch")
