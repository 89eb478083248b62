"""A GPU that computes nothing, to run the code that torch generates for a GPU without having one.

Tensors are fake: they have a shape, strides and a device, but no values. Everything else is real:
Dynamo, AOTAutograd and Inductor write the code for the GPU, and its Python part runs. Only its
Triton kernels are replaced by objects that record the call.

`install` changes torch for the whole process, and must run before torch is imported, so tests use
a process of their own.
"""

import ctypes
import importlib.util
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

CPP = Path(__file__).with_suffix(".cpp")


def load_device() -> None:
    """Compile and load the device; torch must not be imported yet, because it would remember."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    torch_dir = Path(spec.origin).parent
    with tempfile.TemporaryDirectory() as temporary:
        library = Path(temporary) / "fake_gpu.so"
        lib = torch_dir / "lib"
        command = ["g++", "-std=c++20", "-shared", "-fPIC", f"-I{torch_dir / 'include'}", str(CPP)]
        command += ["-o", str(library), f"-L{lib}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{lib}"]
        subprocess.run(command, check=True)
        ctypes.CDLL(str(library))


load_device()
import torch  # noqa: E402
import torch._dynamo.device_interface  # noqa: E402
import torch._functorch.config  # noqa: E402
import torch._inductor.async_compile  # noqa: E402
import torch._inductor.config  # noqa: E402
import torch._inductor.fx_passes.joint_graph as joint_graph  # noqa: E402
import torch._inductor.fx_passes.post_grad as post_grad  # noqa: E402
import triton  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402

GPU = torch.device("cuda", 0)


def install(major: int, minor: int) -> None:
    """Make torch believe in a GPU of the compute capability `major`.`minor`."""
    # What torch evaluates on the device before it generates code is disabled, or done before it
    # believes in the device.
    joint_graph.lazy_init(GPU)
    post_grad.lazy_init()
    torch._inductor.config.joint_graph_constant_folding = False
    torch._inductor.config.compile_threads = 1
    torch._inductor.config.fx_graph_cache = False
    torch._functorch.config.enable_autograd_cache = False

    properties = SimpleNamespace(
        name="fake GPU", major=major, minor=minor, multi_processor_count=132, warp_size=32,
        total_memory=80 << 30, L2_cache_size=50 << 20, regs_per_multiprocessor=65_536,
        max_threads_per_multi_processor=2_048, max_threads_per_block=1_024,
        shared_memory_per_block=49_152, shared_memory_per_block_optin=232_448,
        shared_memory_per_multiprocessor=233_472, gcnArchName="", clock_rate=1_980_000,
        memory_clock_rate=2_619_000, memory_bus_width=5_120, uuid="0", is_integrated=False,
        pci_bus_id=0,
    )  # fmt: skip

    def zero(*_arguments: object) -> int:
        return 0

    cuda: Any = torch.cuda
    device_interface: Any = torch._dynamo.device_interface
    guards: Any = torch._C._dynamo.guards
    compiler: Any = torch._inductor.async_compile.AsyncCompile
    functional: Any = F
    cuda.get_device_properties = cuda._get_device_properties = lambda *_: properties
    cuda.get_device_capability = lambda *_: (major, minor)
    cuda.get_device_name = lambda *_: properties.name
    cuda.is_available = lambda: True
    cuda.is_bf16_supported = lambda *_, **_options: major >= 8
    cuda.device_count = lambda: 1
    cuda.current_device = zero
    # Two functions, because Dynamo looks them up.
    cuda._exchange_device = lambda _: 0
    cuda._maybe_exchange_device = lambda _: 0
    cuda.set_device = cuda._lazy_init = cuda.synchronize = cuda.set_rng_state = zero
    cuda.get_rng_state = lambda *_: torch.zeros(16, dtype=torch.uint8)
    torch._C._cuda_getCurrentRawStream = lambda device: 0  # noqa: ARG005
    torch.accelerator.is_available = lambda: False  # streams are not traced
    torch.version.cuda = "13.0"

    class Interface(device_interface.CudaInterface):  # type: ignore[misc]
        Worker = SimpleNamespace(
            get_device_properties=lambda *_: properties, current_device=zero, set_device=zero
        )
        get_compute_capability = staticmethod(lambda *_: 10 * major + minor)
        is_triton_capable = staticmethod(lambda *_: True)
        raise_if_triton_unavailable = staticmethod(zero)
        get_raw_stream = staticmethod(zero)

    device_interface.init_device_reg()
    device_interface.register_interface_for_device("cuda", Interface)
    device_interface.register_interface_for_device("cuda:0", Interface)
    target = GPUTarget("cuda", 10 * major + minor, 32)
    driver = SimpleNamespace(get_current_target=lambda: target, get_current_device=zero)
    triton.runtime.driver.set_active(driver)

    # Functions in C++ that the generated code calls.
    guards._empty_strided_cuda = lambda size, stride, dtype: torch.empty_strided(
        size, stride, dtype=dtype, device=GPU
    )
    guards._reinterpret_tensor = lambda base, size, stride, offset=0: torch.as_strided(
        base, size, stride, offset
    )
    guards.copy_if_misaligned = lambda tensor: tensor
    guards.assert_alignment = zero
    compiler.triton = lambda _, name, source, **_options: Kernel(name, source)
    functional.scaled_dot_product_attention = efficient_attention


def efficient_attention(
    q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor, dropout_p: float = 0.0
) -> Tensor:
    """Compute attention as torch does on a GPU, if the memory-efficient kernel is chosen.

    Which kernel is chosen is decided by compiled code that a torch without CUDA has not.
    """
    bias = attn_mask
    if bias.dtype == torch.bool:
        bias = torch.where(bias, 0.0, float("-inf")).to(q.dtype)
    bias = bias.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    compute = torch.ops.aten._scaled_dot_product_efficient_attention
    out: Tensor = compute(q, k, v, bias, q.requires_grad, dropout_p, False)[0]
    return out


class Kernel:
    """A Triton kernel that records its calls."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source

    def run(self, *arguments: object, stream: object) -> None:  # noqa: ARG002
        """Record a call."""
        if Recorder.active is not None:
            Recorder.active.add(self.name, arguments)
            Recorder.active.sources[self.name] = self.source


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records kernels and memory of everything that runs in its context."""

    active: "Recorder | None" = None

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels = Counter[str]()
        self.sources: dict[str, str] = {}
        self.bytes = Counter[str]()  # read and written by a kernel, in all its calls
        self.host: list[str] = []  # operations on tensors of the host
        self.with_gaps: list[str] = []  # allocations that are larger than the tensor
        self.peak = 0  # bytes in memory, without what was there before
        self._live: dict[int, tuple[StorageWeakRef, int]] = {}

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let torch.compile work as if this mode were not active."""
        return True

    def __enter__(self) -> "Recorder":
        Recorder.active = self
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        Recorder.active = None
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, function: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run and record an operation."""
        result = function(*args, **(kwargs or {}))
        if function.namespace == "prim":
            return result
        inputs = [leaf for leaf in tree_leaves([args, kwargs]) if isinstance(leaf, Tensor)]
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        old = {storage_id(tensor) for tensor in inputs}
        for tensor in outputs:
            if tensor.device.type != "cuda":
                continue
            storage = tensor.untyped_storage()
            if storage._cdata not in self._live and storage_id(tensor) not in old:
                self._live[storage._cdata] = (
                    StorageWeakRef(storage),  # type: ignore[no-untyped-call]
                    storage.nbytes(),
                )
                if storage.nbytes() > tensor.numel() * tensor.itemsize:
                    self.with_gaps.append(f"{function} {tuple(tensor.shape)} {tensor.stride()}")
        self._measure()
        is_view = outputs and all(storage_id(tensor) in old for tensor in outputs)
        is_written = function._schema.is_mutable
        if "empty" in str(function) or (is_view and not is_written):
            return result
        tensors = [*inputs, *outputs]
        if any(tensor.device.type == "cpu" for tensor in tensors):
            self.host.append(str(function))
        self.add(str(function), tensors)
        return result

    def add(self, name: str, arguments: Iterable[object]) -> None:
        """Count one call of a kernel."""
        self.kernels[name] += 1
        tensors = {id(leaf): leaf for leaf in arguments if isinstance(leaf, Tensor)}
        self.bytes[name] += sum(t.numel() * t.itemsize for t in tensors.values())

    def _measure(self) -> None:
        for key, (reference, _) in list(self._live.items()):
            if reference.expired():  # type: ignore[no-untyped-call]
                del self._live[key]
        self.peak = max(self.peak, sum(n_bytes for _, n_bytes in self._live.values()))


def storage_id(tensor: Tensor) -> int:
    """Return a number that tensors have in common if they share memory."""
    return int(tensor.untyped_storage()._cdata)


def repeated_random_numbers(source: str) -> list[str]:
    """Return the calls in a kernel that draw random numbers more than once.

    Since torch 2.13, `rand4x` draws numbers for the offsets first, first + 1, .. of a block, which
    is right only if the offsets of the block are consecutive (pytorch#198333).
    """
    wrong = []
    for name in re.findall(r"rand4x\(\w+, \(*(\w+)", source):
        offset = name
        # Follow assignments such as "tmp1 = (x0).to(tl.int32)" to an expression.
        while match := re.search(rf"^ *{offset} = \(*(.+?)\)*(?:\.to\(.*)?$", source, re.MULTILINE):
            offset = match[1]
            if offset == "xindex" or not offset.isidentifier():
                break
        if offset != "xindex":
            wrong.append(f"{name} = {offset}")
    return wrong
