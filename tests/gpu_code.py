"""Generate and check the code of a training step for a GPU, without a GPU.

Usage: python tests/gpu_code.py MODEL DTYPE CAPABILITY [FAULT], such as base bfloat16 9.0. It prints
a JSON object. With `--table`, it prints the table of all combinations in Markdown instead.
"""

import json
import re
import subprocess
import sys
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fake_gpu import Recorder

MODELS = ("base", "big")
DTYPES = ("float32", "bfloat16", "float16")
CAPABILITIES = ("7.5", "8.0", "9.0")
FAULTS = ("gaps", "host", "read", "break", "random", "recompute")
# of WMT 2014 English-German
N_BINS = 104
LENGTH = 256
N_ROWS = 40_960


def generate(model_name: str, dtype_name: str, capability: str, fault: str = "") -> dict[str, Any]:
    """Run micro-batches of a model on a fake GPU, and return what was recorded.

    Args:
        model_name: One of MODELS.
        dtype_name: One of DTYPES.
        capability: One of CAPABILITIES.
        fault: One of FAULTS, which a check must find.
    """
    import fake_gpu  # replaces parts of torch
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from nmtkit.config.loading import load_recipe
    from nmtkit.fast.accelerate import accelerate
    from nmtkit.model.transformer import Transformer
    from nmtkit.training.acceleration import Level
    from nmtkit.training.gradients import Gradients
    from nmtkit.training.memory import token_bytes

    fake_gpu.install(*map(int, capability.split(".")))
    config = load_recipe(f"wmt14-en-de-{model_name}").model
    dtype = getattr(torch, dtype_name)
    with FakeTensorMode(allow_non_fake_inputs=True):
        with fake_gpu.GPU:
            model = accelerate(Transformer(config, N_ROWS, dtype)).train()
        bins = torch.zeros(7, N_BINS, LENGTH, dtype=torch.int64, device=fake_gpu.GPU)
        scale = torch.ones((), dtype=torch.float64, device=fake_gpu.GPU)
        insert_fault(fault, model)
        gradients = Gradients(model, 0.1, Level.COMPILED)
        gradients.start_update()
        gradients.add(bins, scale)  # compiles
        with fake_gpu.Recorder() as recorder:
            gradients.add(bins, scale)
    repeated = []
    for source in recorder.sources.values():
        repeated += fake_gpu.repeated_random_numbers(source)
    return {
        "kernels": sum(recorder.kernels.values()),
        "casts": count_casts(recorder),
        "gigabytes": sum(recorder.bytes.values()) / 1e9,
        # The gradient of the output matrix is counted with the parameters.
        "position_bytes": (recorder.peak - 4 * model.output_matrix.numel()) / (N_BINS * LENGTH),
        "estimated_bytes": token_bytes(config, N_ROWS, dtype),
        "n_draws": count_draws(recorder),
        "n_dropouts": 2 + 2 * len(model.encoder) + 3 * len(model.decoder),
        "host": recorder.host,
        "with_gaps": recorder.with_gaps,
        "repeated": repeated,
    }


def count_draws(recorder: "Recorder") -> int:
    """Count the random tensors that the kernels draw."""
    return sum(
        recorder.kernels[name] * len(re.findall(r"\brand(?:4x)?\(", source))
        for name, source in recorder.sources.items()
    )


def count_casts(recorder: "Recorder") -> int:
    """Count the kernels that do nothing but cast a tensor."""
    names = [name for name in recorder.kernels if name.startswith("triton_poi_fused__to_copy_")]
    casts = [name for name in names if name.removeprefix("triton_poi_fused__to_copy_").isdecimal()]
    return sum(recorder.kernels[name] for name in casts)


def insert_fault(fault: str, model: Any) -> None:
    """Let the model do something that is forbidden."""
    import torch
    from torch import nn

    if fault == "gaps":  # the keys and values of all layers are views of one tensor
        attentions = [layer.cross_attention for layer in model.decoder]

        @torch.compile(fullgraph=True, dynamic=False)
        def merged(memory: Any) -> Any:
            weight = torch.cat([cross.kv.weight for cross in attentions]).to(memory.dtype)
            bias = torch.cat([cross.kv.bias for cross in attentions]).to(memory.dtype)
            parts = nn.functional.linear(memory, weight, bias).chunk(len(attentions), dim=-1)
            return [
                cross.split_heads(part, cross.d_k, cross.d_v)
                for cross, part in zip(attentions, parts, strict=True)
            ]

        genuine_encode = model.encode
        memories: list[Any] = []

        def encode(src: Any, layout: Any) -> Any:
            memory = genuine_encode(src, layout)
            memories[:] = merged(memory)
            return memory

        model.encode = encode
        for cross in attentions:
            cross.keys_values = lambda _: memories.pop(0)
    elif fault == "host":  # a table on the host that is copied in every micro-batch
        host_table = torch.empty(LENGTH, model.config.d_model, device="cpu")
        model.src_embedding._sinusoids = model.src_embedding._sinusoids[:100]
        model.src_embedding._table = lambda _: host_table
    elif fault == "read":  # a number that is read from the device
        genuine = model.encode

        def reading(src: Any, layout: Any) -> Any:
            return genuine(src, layout) * src.max().item()

        model.encode = reading
    elif fault == "random":  # dropout of a transposed copy (pytorch#198333)
        feed_forward = model.encoder[0].feed_forward

        def transposed(x: Any) -> Any:
            inner = feed_forward.w1(x).transpose(1, 2).contiguous()
            return feed_forward.w2(nn.functional.dropout(inner, 0.1).transpose(1, 2))

        feed_forward.forward = transposed
        torch._inductor.config.triton.max_tiles = 1
    elif fault == "recompute":  # the backward pass draws random numbers again (pytorch#190717)
        torch._functorch.config.activation_memory_budget = 0.0
    elif fault == "break":  # a print
        feed_forward = model.encoder[0].feed_forward
        feed_forward.forward = lambda x: (print("x"), feed_forward.w2(feed_forward.w1(x)))[1]


def in_process(*arguments: str) -> dict[str, Any]:
    """Run `generate` in a process of its own."""
    command = [sys.executable, __file__, *arguments]
    process = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if process.returncode != 0:
        raise RuntimeError(process.stderr)
    found: dict[str, Any] = json.loads(process.stdout.strip().split("\n")[-1])
    return found


def table() -> None:
    """Print all combinations."""
    print("| model | precision | capability | kernels | casts | GB | kB | estimated |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    for combination in product(MODELS, DTYPES, CAPABILITIES):
        if combination[1:] == ("bfloat16", "7.5"):  # torch compiles it for 8.0 and later
            continue
        found = in_process(*combination)
        print(
            f"| {' | '.join(combination)} | {found['kernels']} | {found['casts']} | "
            f"{found['gigabytes']:.1f} | "
            f"{found['position_bytes'] / 1e3:.1f} | {found['estimated_bytes'] / 1e3:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        table()
    else:
        print(json.dumps(generate(*sys.argv[1:])))
