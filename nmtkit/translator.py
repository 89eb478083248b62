"""A bundle, ready to translate: the class that Python users and the commands share."""

from collections.abc import Sequence
from pathlib import Path

from nmtkit.decoding import lines
from nmtkit.decoding.bundle import Bundle, open_bundle
from nmtkit.decoding.engine import Engine
from nmtkit.errors import UserError
from nmtkit.machine import RUNS, EngineName, EnginePrecision, Machine, check_bfloat16
from nmtkit.recipe_file import override_decoding
from nmtkit.store import fingerprint_of

# On a CPU without compiled kernels, our engine is faster than CTranslate2 with models at least as
# wide as the paper's base model and with a large vocabulary (`nmtkit/decoding/README.md` has
# figures).
WIDTH_OF_OURS = 512
ROWS_OF_OURS = 16_384


class Translator(lines.Translator):
    """Translates raw text with a bundle or an ensemble, as `nmtkit translate --bundle` does."""

    def __init__(
        self,
        bundle: str | Path,
        *others: str | Path,
        device: str = "auto",
        engine: EngineName = EngineName.TORCH,
        dtype: EnginePrecision = EnginePrecision.AUTO,
        beam_size: int | None = None,
        length_penalty: float | None = None,
    ) -> None:
        """Open a bundle and load its model.

        Args:
            bundle: The folder.
            others: Those of the other models of an ensemble. The probabilities are averaged; the
                decoding settings are those of the first.
            device: auto, cpu, cuda, cuda:1, ...
            engine: What runs the model; `EngineName.AUTO` takes the faster one.
            dtype: The precision that it computes in.
            beam_size: In place of the bundle's.
            length_penalty: The paper's alpha, in place of the bundle's.

        Raises:
            UserError: A folder is not a bundle, the bundles differ in their vocabularies, a value
                is out of range, or the engine can't run the model.
        """
        first, *rest = bundles = [open_bundle(Path(each)) for each in (bundle, *others)]
        for other in rest:
            if not other.reads_as(first):
                raise UserError(
                    f"{other.artifact.path} and {first.artifact.path} have different vocabularies; "
                    "an ensemble needs bundles with the same vocabulary and tokenization"
                )
        loaded = load_engine(first, Machine(RUNS, device=device), engine, dtype, rest)
        decoding = override_decoding(first.decoding, beam_size, length_penalty)
        fingerprint = fingerprint_of(
            "translator",
            {
                "bundles": [each.fingerprint for each in bundles],
                "decoding": decoding.model_dump(),
                "engine": loaded.name,
                "device": loaded.device,
                "dtype": dtype,
            },
        )
        longest = min(each.max_subwords for each in bundles)
        super().__init__(first.text, loaded, decoding, longest, fingerprint)


def load_engine(
    bundle: Bundle,
    machine: Machine,
    engine: EngineName,
    dtype: EnginePrecision,
    others: Sequence[Bundle] = (),
) -> Engine:
    """Load the model of `bundle`, and those of the `others` of an ensemble, into an engine.

    Raises:
        UserError: The engine is not installed, or can't run this model in this precision here.
    """
    if engine == EngineName.AUTO:
        if dtype not in (EnginePrecision.AUTO, EnginePrecision.FLOAT32):
            raise UserError(f"--engine auto is for float32; with --dtype {dtype}, name an engine")
        engine = _faster_engine(bundle, machine, n_models=1 + len(others))
    if engine == EngineName.CTRANSLATE2:
        if others:
            raise UserError("--engine ctranslate2 runs no ensemble; use --engine torch")
        try:
            from nmtkit.decoding.ctranslate2_engine import CTranslate2Engine
        except ModuleNotFoundError:
            raise UserError(
                "--engine ctranslate2 needs a package that is not installed; run `pip install "
                "nmtkit[ctranslate2]`, or leave it out"
            ) from None
        precision = EnginePrecision.FLOAT32 if dtype == EnginePrecision.AUTO else dtype
        return CTranslate2Engine.load(bundle, machine.device, precision)
    import torch

    from nmtkit.decoding.torch_engine import TorchEngine

    device = machine.torch_device()
    if dtype in (EnginePrecision.AUTO, EnginePrecision.FLOAT32):
        return TorchEngine.load(bundle, device, torch.float32, others)
    if dtype != EnginePrecision.BFLOAT16:
        raise UserError(f"--engine torch has no {dtype}; use --dtype float32 or bfloat16")
    check_bfloat16(device)
    if device.type == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        raise UserError(
            "--dtype bfloat16 needs a processor with AVX-512; use --dtype float32 on this one"
        )
    return TorchEngine.load(bundle, device, torch.bfloat16, others)


def _faster_engine(bundle: Bundle, machine: Machine, n_models: int) -> EngineName:
    """Return the engine that is faster in float32, of those that can run the model here.

    On a CPU, ours is with compiled kernels, which on Intel's processors were not compared, and
    CTranslate2 is without them, with smaller models. On a GPU, the two were not compared.
    """
    from nmtkit.kernels.library import library
    from nmtkit.model.products import is_intel

    config, n_rows = bundle.description.config, bundle.description.n_rows
    is_large = config.d_model >= WIDTH_OF_OURS and n_rows >= ROWS_OF_OURS
    if is_large or n_models > 1 or (library() is not None and not is_intel()):
        return EngineName.TORCH
    try:
        from nmtkit.decoding.ctranslate2_engine import cache_folder, device_of
        from nmtkit.interchange.ctranslate2_limits import check_supported

        check_supported(config)
        cache_folder()
        kind, _ = device_of(machine.device)
    except (ModuleNotFoundError, UserError):
        return EngineName.TORCH
    return EngineName.CTRANSLATE2 if kind == "cpu" else EngineName.TORCH
