"""The class `nmtkit.Translator`, for users of Python and for the commands."""

from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from nmtkit.config.model import DecodingConfig
from nmtkit.config.settings import RUNS, EngineName, EnginePrecision, Settings
from nmtkit.decoding.bundle import Bundle, open_bundle
from nmtkit.decoding.engine import Engine, Sampling
from nmtkit.decoding.text_translator import TextTranslator
from nmtkit.store.files import temporary_folder
from nmtkit.store.locks import BusyError, NoLocksError
from nmtkit.store.manifests import compute_fingerprint
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.hardware import check_has_code
from nmtkit.utils.text import quote

AnyChoice = TypeVar("AnyChoice", bound=StrEnum)


class Translator(TextTranslator):
    """Translates raw text with a bundle or an ensemble, as `nmtkit translate --bundle` does."""

    def __init__(
        self,
        bundle: str | Path,
        *others: str | Path,
        device: str = "auto",
        engine: EngineName | str = EngineName.AUTO,
        dtype: EnginePrecision | str = EnginePrecision.AUTO,
        beam_size: int | None = None,
        length_penalty: float | None = None,
        length_penalty_formula: str | None = None,
        split_sentences: bool = True,
        sampling: Sampling | None = None,
    ) -> None:
        """Open a bundle, or several bundles that form an ensemble, and load the model.

        After a fork, the child process can use the object on a CPU: CTranslate2 reloads its model
        there.

        Args:
            others: Folders of more bundles, whose probabilities are averaged with those of the
                first. The decoding settings are those of the first.
            device: auto, cpu, cuda, cuda:1, ...
            engine: torch, ctranslate2 or auto, as `--engine`. With torch, the translation of a
                line does not depend on the other lines; with CTranslate2 it may, by rounding.
            dtype: auto, float32, bfloat16, float16 or int8, as `--dtype`.
            beam_size: Beam size (default: the bundle's).
            length_penalty: The paper's alpha (default: the bundle's).
            length_penalty_formula: gnmt, the paper's, or fairseq (default: the bundle's).
            split_sentences: Translate the sentences of a line one by one. It has no effect on a
                parser.
            sampling: Draw translations at random instead of by beam search (`--sample`).

        Raises:
            UserError: A folder is not a bundle, the bundles differ in their vocabularies, a value
                is out of range, or the engine can't run the model.
        """
        if sampling is not None:
            sampling.check()
        engine = _member(EngineName, "engine", engine)
        dtype = _member(EnginePrecision, "dtype", dtype)
        bundles = [open_bundle(Path(path)) for path in (bundle, *others)]
        first = bundles[0]
        for other in bundles[1:]:
            if other.text_hashes() != first.text_hashes():
                raise UserError(
                    f"{other.artifact.path} and {first.artifact.path} have different "
                    "vocabularies; pass bundles with the same vocabulary and tokenization"
                )
        loaded = load_engine(bundles, Settings(RUNS, device=str(device)), engine, dtype)
        if first.text.src.tokenizer == "moses":
            first.text.src.tokenize("")  # loads its rules; the first line would wait for them
        decoding = first.decoding.with_values(beam_size, length_penalty, length_penalty_formula)
        super().__init__(
            text=first.text,
            engine=loaded,
            decoding=decoding,
            max_subwords=min(bundle.max_subwords for bundle in bundles),
            fingerprint=_fingerprint(bundles, loaded, decoding, dtype, split_sentences, sampling),
            split_sentences=split_sentences,
            sampling=sampling,
        )


def _fingerprint(
    bundles: Sequence[Bundle],
    engine: Engine,
    decoding: DecodingConfig,
    dtype: EnginePrecision,
    split_sentences: bool,
    sampling: Sampling | None,
) -> str:
    """Return a hash of everything that translations depend on."""
    hashes = []
    for bundle in bundles:
        files = bundle.artifact.manifest.files
        hashes.append({name: file.sha256 for name, file in files.items()})
    depends_on = {
        "bundles": hashes,
        "decoding": decoding.model_dump(),
        "engine": [engine.name, version(engine.name)],
        "device": engine.device,
        "dtype": dtype,
        "split_sentences": version("sentencex") if split_sentences else None,
        "sampling": sampling and asdict(sampling),
    }
    return compute_fingerprint("translator", depends_on)


def _member(kind: type[AnyChoice], name: str, value: str) -> AnyChoice:
    """Return the member of an enumeration with a value.

    Args:
        name: Name of the parameter, for the error.
        value: The value, or the member itself.

    Raises:
        UserError: No member has this value.
    """
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(kind)
        raise UserError(f"{name} is {quote(value)}; expected one of {choices}") from None


def load_engine(
    bundles: Sequence[Bundle], settings: Settings, engine: EngineName, dtype: EnginePrecision
) -> Engine:
    """Load the model of a bundle, or those of an ensemble, into an engine.

    Args:
        bundles: One bundle, or those of an ensemble.
        engine: `EngineName.AUTO` is CTranslate2 on a CPU, if it can run the model, else torch; the
            choice is logged.

    Raises:
        UserError: The engine cannot run the model, or not with this precision.
    """
    if engine == EngineName.CTRANSLATE2:
        if len(bundles) > 1:
            raise UserError("--engine ctranslate2 does not support ensembles; use --engine torch")
        return _load_ctranslate2(bundles[0], settings.device, dtype)
    if engine == EngineName.AUTO and len(bundles) == 1 and _is_cpu(settings.device):
        try:
            loaded = _load_ctranslate2(bundles[0], "cpu", dtype)
        except (UserError, OSError, RuntimeError) as error:
            progress.warn(f"engine: torch, since CTranslate2 failed ({error})")
        else:
            progress.log("engine: ctranslate2")
            return loaded
    elif engine == EngineName.AUTO:
        progress.log("engine: torch (the default for ensembles and on a GPU)")
    if dtype in (EnginePrecision.FLOAT16, EnginePrecision.INT8):
        raise UserError(
            f"--engine torch does not support --dtype {dtype}; use --dtype float32 or bfloat16, "
            "or --engine ctranslate2"
        )
    import torch

    from nmtkit.decoding.torch_engine import TorchEngine

    precision = torch.bfloat16 if dtype == EnginePrecision.BFLOAT16 else torch.float32
    device = settings.torch_device()
    check_has_code(device)
    return TorchEngine.load(bundles, device, precision)


def _is_cpu(device: str) -> bool:
    """Return whether to compute on a CPU. CTranslate2 is faster to import than torch."""
    import ctranslate2

    return device == "cpu" or (device == "auto" and ctranslate2.get_cuda_device_count() == 0)


def _load_ctranslate2(bundle: Bundle, device: str, dtype: EnginePrecision) -> Engine:
    """Load CTranslate2; if the converted model cannot be cached, it is converted for this run."""
    from nmtkit.decoding.ctranslate2_engine import CTranslate2Engine, cache_folder

    precision = "float32" if dtype == EnginePrecision.AUTO else dtype.value
    try:
        return CTranslate2Engine.load(bundle, device, precision, cache_folder())
    except (OSError, BusyError, NoLocksError) as error:
        progress.warn(f"engine: the converted model could not be cached ({error})")
        with temporary_folder() as folder:
            return CTranslate2Engine.load(bundle, device, precision, folder)
