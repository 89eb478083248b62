"""A bundle, ready to translate: the class that Python users and the commands share."""

from collections.abc import Sequence
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from nmtkit.config.loading import override_decoding
from nmtkit.config.settings import RUNS, EngineName, EnginePrecision, Settings
from nmtkit.decoding import lines
from nmtkit.decoding.bundle import Bundle, open_bundle
from nmtkit.decoding.engine import Engine
from nmtkit.store.files import temporary_folder
from nmtkit.store.locks import BusyError, NoLocksError
from nmtkit.store.manifests import fingerprint_of
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.hardware import check_has_code
from nmtkit.utils.text import quote

AnyChoice = TypeVar("AnyChoice", bound=StrEnum)


class Translator(lines.Translator):
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
        split_sentences: bool = True,
    ) -> None:
        """Open the folder of a bundle, or of several that form an ensemble, and load the model.

        After a fork, the child process can use the object on a CPU: CTranslate2 loads its model
        again there.

        Args:
            bundle: Folder of a bundle.
            others: The probabilities are averaged; the decoding settings are those of the first.
            device: auto, cpu, cuda, cuda:1, ...
            engine: torch, ctranslate2 or auto, as `--engine`. With torch, the translation of a
                line does not depend on the other lines; with CTranslate2 it may, by rounding.
            dtype: auto, float32, bfloat16, float16 or int8, as `--dtype`.
            beam_size: Replaces the bundle's.
            length_penalty: The paper's alpha; replaces the bundle's.
            split_sentences: Translate the sentences of a line one by one. A parser's bundle never
                does.

        Raises:
            UserError: A folder is not a bundle, the bundles differ in their vocabularies, a value
                is out of range, or the engine can't run the model.
        """
        engine = _member(EngineName, "engine", engine)
        dtype = _member(EnginePrecision, "dtype", dtype)
        first, *rest = bundles = [open_bundle(Path(each)) for each in (bundle, *others)]
        for other in rest:
            if other.hashes_of_text() != first.hashes_of_text():
                raise UserError(
                    f"{other.artifact.path} and {first.artifact.path} have different vocabularies; "
                    "an ensemble needs bundles with the same vocabulary and tokenization"
                )
        loaded = load_engine(bundles, Settings(RUNS, device=str(device)), engine, dtype)
        decoding = override_decoding(first.decoding, beam_size, length_penalty)
        made_of = {
            "bundles": [
                {name: file.sha256 for name, file in each.artifact.manifest.files.items()}
                for each in bundles
            ],
            "decoding": decoding.model_dump(),
            "engine": [loaded.name, version(loaded.name)],
            "device": loaded.device,
            "dtype": dtype,
            "split_sentences": version("sentencex") if split_sentences else None,
        }
        longest = min(each.max_subwords for each in bundles)
        fingerprint = fingerprint_of("translator", made_of)
        super().__init__(first.text, loaded, decoding, longest, fingerprint, split_sentences)


def _member(kind: type[AnyChoice], name: str, value: str) -> AnyChoice:
    """Return the member of an enumeration, which may be a string."""
    try:
        return kind(value)
    except ValueError:
        choices = ", ".join(kind)
        raise UserError(f"{name} is {quote(value)}; expected one of {choices}") from None


def load_engine(
    bundles: Sequence[Bundle], settings: Settings, engine: EngineName, dtype: EnginePrecision
) -> Engine:
    """Load the model of a bundle, or those of an ensemble, into an engine.

    `EngineName.AUTO` is CTranslate2 on a CPU, if it can run the model, else torch; a line says so.
    """
    if engine == EngineName.CTRANSLATE2:
        if len(bundles) > 1:
            raise UserError("--engine ctranslate2 runs no ensemble; use --engine torch")
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
        progress.log("engine: torch, as for all ensembles and on every GPU")
    if dtype in (EnginePrecision.FLOAT16, EnginePrecision.INT8):
        raise UserError(
            f"--engine torch has no {dtype}; use --dtype float32 or bfloat16, or --engine "
            "ctranslate2"
        )
    import torch

    from nmtkit.decoding.torch_engine import TorchEngine

    computed = torch.bfloat16 if dtype == EnginePrecision.BFLOAT16 else torch.float32
    check_has_code(device := settings.torch_device())
    return TorchEngine.load(bundles, device, computed)


def _is_cpu(device: str) -> bool:
    """Return whether to compute on a CPU. Asking torch would take longer."""
    import ctranslate2

    return device == "cpu" or (device == "auto" and ctranslate2.get_cuda_device_count() == 0)


def _load_ctranslate2(bundle: Bundle, device: str, dtype: EnginePrecision) -> Engine:
    """Load CTranslate2; where the converted model can't be kept, convert it for this time only."""
    from nmtkit.decoding.ctranslate2_engine import CTranslate2Engine, cache_folder

    computed = "float32" if dtype == EnginePrecision.AUTO else dtype.value
    try:
        return CTranslate2Engine.load(bundle, device, computed, cache_folder())
    except (OSError, BusyError, NoLocksError) as error:
        progress.warn(f"engine: the converted model is not kept for the next time ({error})")
        with temporary_folder() as folder:
            return CTranslate2Engine.load(bundle, device, computed, folder)
