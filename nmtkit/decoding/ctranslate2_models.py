"""Models of bundles in the format of CTranslate2: converted once, in a cache, and loaded."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import ctranslate2

from nmtkit.decoding.bundle import Bundle
from nmtkit.decoding.lines import MAX_SUBWORDS
from nmtkit.model.description import MODEL
from nmtkit.model.weights import WEIGHTS
from nmtkit.store.artifacts import Store, verify
from nmtkit.store.files import delete
from nmtkit.store.manifests import compute_fingerprint
from nmtkit.store.records import DamagedError
from nmtkit.utils.errors import UserError
from nmtkit.utils.hardware import n_cores

KIND = "ctranslate2"
# Version of the conversion. Increase it when the files of a converted model change: then models
# in the cache are not used any more.
CONVERTER = 2
DTYPES = ("float32", "bfloat16", "float16", "int8")
# Timeout while another process converts the same model; then it is converted without the cache.
WAIT_S = 60.0
N_POSITIONS = MAX_SUBWORDS + 1_000 + 1  # with the largest `max_extra_tokens` and an EOS


def find_device(name: str) -> tuple[str, int]:
    """Return the kind and the number of a device.

    Args:
        name: The value of --device.

    Raises:
        UserError: CTranslate2 cannot use the device.
    """
    devices = {"cpu": ("cpu", 0)}
    n_gpus = ctranslate2.get_cuda_device_count()
    if n_gpus:
        devices["cuda"] = ("cuda", 0)
    devices["auto"] = devices.get("cuda", devices["cpu"])
    for index in range(n_gpus):
        devices[f"cuda:{index}"] = ("cuda", index)
    # Other devices that torch knows are unknown to CTranslate2.
    if name not in devices:
        raise UserError(f"--device {name} is not available to CTranslate2; use --device cpu")
    return devices[name]


def cache_folder() -> Path:
    """Return the folder of converted models. It may be deleted at any time.

    Raises:
        OSError: There is no home folder, and no absolute XDG_CACHE_HOME.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG Base Directory Specification: a relative path is invalid and is ignored.
    if base.is_absolute():
        return base / "nmtkit"
    try:
        return Path.home() / ".cache" / "nmtkit"
    except RuntimeError:
        raise OSError("there is no home folder and no absolute XDG_CACHE_HOME") from None


def convert_once(bundle: Bundle, dtype: str, cache: Path) -> Path:
    """Return the folder of the converted model of a bundle.

    It is found by the hashes of the bundle's files: a copied or moved bundle keeps it.

    Args:
        dtype: One of `DTYPES`.
        cache: The folder of converted models. A missing model is added to it.

    Raises:
        OSError: The cache cannot be written.
        UserError: The weights of the bundle are not those that were published.
    """
    # Also if it was converted before: an altered bundle is refused by all engines.
    bundle.verified_weights()
    files = bundle.artifact.manifest.files
    # Everything that the files of the converted model depend on.
    key = {
        "from": {name: files[name].sha256 for name in (MODEL, WEIGHTS)},
        "dtype": dtype,
        "converter": CONVERTER,
        "ctranslate2": ctranslate2.__version__,
    }
    store = Store(cache)
    fingerprint = compute_fingerprint(KIND, key)
    intact = _intact(store, fingerprint)
    if intact is not None:
        return intact
    with store.draft(KIND, fingerprint, wait_s=WAIT_S) as draft:
        # Another process may have converted the model while this one waited for the lock.
        intact = _intact(store, fingerprint)
        if intact is not None:
            return intact
        store.free(store.place(KIND, fingerprint))  # a damaged conversion
        try:
            _convert(bundle, dtype, draft)
            return store.publish(KIND, fingerprint, depends_on=key, measurements={}).path
        except OSError as error:
            delete(draft)  # it may fill the disk
            error.filename = error.filename or str(draft)
            raise


def _intact(store: Store, fingerprint: str) -> Path | None:
    """Return the folder of a converted model, or None if it is missing or damaged."""
    with suppress(DamagedError):
        artifact = store.find(KIND, fingerprint)
        return verify(artifact).path if artifact else None
    return None


def _convert(bundle: Bundle, dtype: str, folder: Path) -> None:
    """Write the model of a bundle in the format of CTranslate2.

    Args:
        dtype: One of `DTYPES`.
    """
    import torch  # slow, and a converted model does not need it

    from nmtkit.decoding.torch_engine import load_model
    from nmtkit.interchange.ctranslate2 import write_model

    model = load_model(bundle, torch.device("cpu"))
    names = [str(id_) for id_ in range(bundle.description.n_rows)]
    write_model(folder, model, names, dtype, N_POSITIONS)


def open_model(folder: Path, device: str, index: int, dtype: str) -> ctranslate2.Translator:
    """Load a converted model.

    Args:
        folder: The converted model.
        device: "cpu" or "cuda".
        index: Number of the GPU.
        dtype: One of `DTYPES`.

    Raises:
        UserError: The folder was deleted.
    """
    if not folder.is_dir():
        raise UserError(
            f"the converted model {folder} was deleted since this process was forked; create the "
            "Translator in the child process"
        )
    setting = os.environ.get("OMP_NUM_THREADS", "")
    n_threads = int(setting) if setting.isdecimal() else 0
    n_threads = n_threads or n_cores()
    # CTranslate2 changes the number of OpenMP threads of its caller, and torch would use it.
    with ThreadPoolExecutor(1) as executor:
        loading = executor.submit(
            ctranslate2.Translator,
            str(folder),
            device,
            device_index=index,
            compute_type=dtype,
            inter_threads=n_threads if device == "cpu" else 1,
            intra_threads=1,
        )
    return loading.result()
