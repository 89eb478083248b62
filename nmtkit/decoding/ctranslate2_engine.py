"""CTranslate2 as an engine: its search, on a bundle's model that is converted on first use.

Deviation: this is not the paper's search to the letter. It finishes only hypotheses whose EOS is
among the best `beam_size` continuations of a step, not among twice as many, and it ends with 1.5 or
2 times `beam_size` finished ones, not when no better one can follow.
"""

import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from weakref import WeakSet

import ctranslate2

from nmtkit.config.recipe import DecodingConfig
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from nmtkit.decoding.bundle import Bundle
from nmtkit.decoding.engine import Engine, Forced, Hypothesis, Sentences
from nmtkit.decoding.lines import MAX_SUBWORDS
from nmtkit.model.description import MODEL
from nmtkit.model.weights import WEIGHTS
from nmtkit.store.artifacts import Store
from nmtkit.store.files import delete
from nmtkit.store.manifests import fingerprint_of
from nmtkit.store.records import DamagedError
from nmtkit.store.verification import verify
from nmtkit.utils import progress
from nmtkit.utils.errors import Advance, UserError
from nmtkit.utils.hardware import n_cores

KIND = "ctranslate2"
# Version of the conversion. Increase it when the files of a converted model change, so that models
# in the cache are converted again.
CONVERTER = 2
END = str(EOS_ID)
DTYPES = ("float32", "bfloat16", "float16", "int8")
BATCH_TOKENS = {"cpu": 1_024, "cuda": 16_384}  # of the source, padding included
WAIT_S = 60.0  # for another process that converts the same, before it is done without a cache
N_POSITIONS = MAX_SUBWORDS + 1_000 + 1  # with the largest `max_extra_tokens` and an EOS


class CTranslate2Engine(Engine):
    name = "ctranslate2"

    def __init__(
        self, open_model: Callable[[], ctranslate2.Translator], n_tokens: int, n_rows: int
    ) -> None:
        """Load a model.

        Args:
            open_model: Returns the model. It is called again in a forked child process.
            n_tokens: Size of the vocabulary.
            n_rows: Number of embeddings, which may be larger.
        """
        self._open_model = open_model
        self.device = self._translator.device
        self._forbidden = [PAD_ID, BOS_ID, UNK_ID, *range(n_tokens, n_rows)]
        _engines.add(self)

    @classmethod
    def load(cls, bundle: Bundle, device: str, dtype: str, cache: Path) -> "CTranslate2Engine":
        """Load the model of `bundle`, converted unless the folder `cache` has it already."""
        kind, index = device_of(device)
        offered = ctranslate2.get_supported_compute_types(kind, index)
        if dtype not in offered:
            others = " or ".join(each for each in DTYPES if each in offered)
            raise UserError(f"CTranslate2 has no {dtype} on this {kind}; use --dtype {others}")
        open_model = partial(_open_model, _converted(bundle, dtype, cache), kind, index, dtype)
        return cls(open_model, bundle.text.subword.n_tokens, bundle.description.n_rows)

    def abandon_model(self) -> None:
        """Open the model again at its next use, in a process that has been forked.

        A fork does not copy the threads of CTranslate2: waiting for them, as the destructor of a
        model does, would never end. So the inherited model is leaked.
        """
        if "_translator" in self.__dict__:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.__dict__.pop("_translator")))

    @cached_property
    def _translator(self) -> ctranslate2.Translator:
        return self._open_model()

    def translate(
        self, sources: Sentences, decoding: DecodingConfig, n_best: int, progress: Advance
    ) -> list[list[Hypothesis]]:
        """Translate sentences, as `Engine` says.

        CTranslate2 forbids a token before the softmax, so that others become more probable: only
        sentences for which too little else is found are searched again without them.
        """
        allowed = set(self._forbidden).isdisjoint
        found = [
            [each for each in of_one if allowed(each.tokens)]
            for of_one in self._search(sources, decoding, [], progress)
        ]
        left = [i for i, of_one in enumerate(found) if len(of_one) < n_best]
        rest = [sources[i] for i in left]
        again = self._search(rest, decoding, self._forbidden, lambda _: None)
        for i, of_one in zip(left, again, strict=True):
            found[i] = of_one
        return [of_one[:n_best] for of_one in found]

    def force(self, sources: Sentences, targets: Sentences, *, align: bool) -> list[Forced]:
        """Rate given translations, as `Engine` says; it finds no links."""
        if align:
            raise UserError("CTranslate2 links no tokens to the source; use --engine torch")
        found = self._translator.score_batch(
            _written(sources),
            _written(targets),
            max_batch_size=BATCH_TOKENS[self.device],
            batch_type="tokens",
            max_input_length=0,  # no limit
        )
        return [Forced(result.log_probs, []) for result in found]

    def _search(
        self, sources: Sentences, decoding: DecodingConfig, forbidden: list[int], progress: Advance
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, best first.

        CTranslate2 has one maximum length for a batch, and does not need an EOS there. What is
        longer than its own source allows is cut to that length, and rated again; so is all that is
        found while tokens are forbidden.
        """
        alpha = decoding.length_penalty
        by_length = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        found: list[list[Hypothesis]] = [[] for _ in sources]
        unrated: dict[tuple[int, tuple[int, ...]], None] = {}  # the same only once
        results = self._results([sources[i] for i in by_length], decoding, forbidden)
        for i, result in zip(by_length, results, strict=True):
            max_length = len(sources[i]) - 1 + decoding.max_extra_tokens
            for tokens, score in zip(result.hypotheses, result.scores, strict=True):
                ids = [int(token) for token in tokens if token != END]
                if len(ids) == len(tokens) or len(ids) > max_length or forbidden:
                    unrated[i, tuple(ids[:max_length])] = None
                else:
                    found[i].append(Hypothesis.rated(ids, score * len(tokens) ** alpha, decoding))
            progress(1)
        of_cut = [sources[i] for i, _ in unrated]
        rated = self.force(of_cut, [ids for _, ids in unrated], align=False)
        for (i, cut), forced in zip(unrated, rated, strict=True):
            found[i].append(Hypothesis.rated(list(cut), sum(forced.log_probs), decoding))
        return [sorted(of_one, key=lambda hypothesis: -hypothesis.score) for of_one in found]

    def _results(
        self, sources: Sentences, decoding: DecodingConfig, forbidden: list[int]
    ) -> Iterator[ctranslate2.TranslationResult]:
        """Yield what is found for each of the sentences, which are ordered by falling length.

        Few batches are searched ahead, since what has begun can't be stopped. A search ends with
        `patience` times `beam_size` finished hypotheses; a larger alpha lets later ones win.
        """
        beam_size, alpha = decoding.beam_size, decoding.length_penalty
        patience = 1.0 if beam_size == 1 else 1.5 if alpha <= 1 else 2.0
        begun: deque[list[ctranslate2.AsyncTranslationResult]] = deque()
        while sources:
            n = max(1, BATCH_TOKENS[self.device] // len(sources[0]))
            batch, sources = sources[:n], sources[n:]
            if len(begun) > self._translator.num_translators:
                yield from (each.result() for each in begun.popleft())
            begun.append(
                self._translator.translate_batch(
                    _written(batch),
                    asynchronous=True,
                    beam_size=beam_size,
                    patience=patience,
                    num_hypotheses=int(beam_size * patience),
                    length_penalty=alpha,
                    max_input_length=0,  # no limit
                    min_decoding_length=0,
                    max_decoding_length=len(batch[0]) - 1 + decoding.max_extra_tokens,
                    suppress_sequences=[[str(id_)] for id_ in forbidden],
                    return_end_token=True,
                    return_scores=True,
                )
            )
        for rest in begun:
            yield from (each.result() for each in rest)


_engines: WeakSet[CTranslate2Engine] = WeakSet()


def _abandon_models() -> None:
    for engine in _engines:
        engine.abandon_model()


os.register_at_fork(after_in_child=_abandon_models)


def _open_model(folder: Path, device: str, index: int, dtype: str) -> ctranslate2.Translator:
    """Load a converted model."""
    if not folder.is_dir():
        raise UserError(
            f"the converted model {folder} was deleted since this process was forked; create the "
            "Translator in the child process"
        )
    setting = os.environ.get("OMP_NUM_THREADS", "")
    n_threads = (int(setting) if setting.isdecimal() else 0) or n_cores()
    # CTranslate2 changes the number of OpenMP threads of its caller, which torch would use.
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


def _written(sentences: Sentences) -> list[list[str]]:
    return [list(map(str, ids)) for ids in sentences]


def device_of(name: str) -> tuple[str, int]:
    devices = {"cpu": ("cpu", 0)}
    if n_cuda := ctranslate2.get_cuda_device_count():
        devices["cuda"] = ("cuda", 0)
    devices["auto"] = devices.get("cuda", devices["cpu"])
    devices |= {f"cuda:{index}": ("cuda", index) for index in range(n_cuda)}
    if name not in devices:
        raise UserError(f"--device {name} is not available to CTranslate2; use --device cpu")
    return devices[name]


def cache_folder() -> Path:
    """Return the folder of converted models, which may be deleted at any time.

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


def _converted(bundle: Bundle, dtype: str, cache: Path) -> Path:
    """Return the converted model of `bundle`, which a bundle that is copied or moved keeps."""
    files = bundle.artifact.manifest.files
    origin = {name: files[name].sha256 for name in (MODEL, WEIGHTS)}
    key = {
        "from": origin,
        "dtype": dtype,
        "converter": CONVERTER,
        "ctranslate2": ctranslate2.__version__,
    }
    store, fingerprint = Store(cache, WAIT_S), fingerprint_of(KIND, key)
    if intact := _intact(store, fingerprint):
        return intact
    with store.draft(KIND, fingerprint, log=progress.log) as draft:
        if intact := _intact(store, fingerprint):  # another process made it meanwhile
            return intact
        store.free(store.place(KIND, fingerprint))  # damaged
        try:
            _convert(bundle, dtype, draft)
            return store.publish(KIND, fingerprint, depends_on=key, measurements={}).path
        except OSError as error:
            delete(draft)  # it may fill the disk
            error.filename = error.filename or str(draft)
            raise


def _intact(store: Store, fingerprint: str) -> Path | None:
    """Return a conversion if it is there, every byte as it was written."""
    with suppress(DamagedError):
        found = store.find(KIND, fingerprint)
        return verify(found).path if found else None
    return None


def _convert(bundle: Bundle, dtype: str, folder: Path) -> None:
    import torch

    from nmtkit.decoding.torch_engine import load_model
    from nmtkit.interchange.ctranslate2 import write_model

    model = load_model(bundle, torch.device("cpu"))
    names = [str(id_) for id_ in range(bundle.description.n_rows)]
    write_model(folder, model, names, dtype, N_POSITIONS)
