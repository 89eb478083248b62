"""CTranslate2 as an engine: its search, on a bundle's model that is converted on first use.

Deviation: its search differs in two details from that of the paper's published code. It finishes
only hypotheses whose EOS is among the best `beam_size` continuations of a step, not among twice as
many, and it ends with 1.5 or 2 times `beam_size` finished ones, not when no better one can follow.
"""

import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

import ctranslate2

from nmtkit.config.model import DecodingConfig
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from nmtkit.corpus.vocabulary_map import VOCABULARY_MAP
from nmtkit.decoding.bundle import Bundle
from nmtkit.decoding.engine import Engine, ForcedDecoding, Hypothesis, Sampling, Sentences
from nmtkit.decoding.text_translator import MAX_SUBWORDS
from nmtkit.model.weights import MODEL, WEIGHTS
from nmtkit.store.artifacts import Store, verify
from nmtkit.store.files import delete
from nmtkit.store.manifests import compute_fingerprint
from nmtkit.store.records import DamagedError
from nmtkit.utils.errors import Advance, UserError
from nmtkit.utils.hardware import n_threads

END = str(EOS_ID)
BATCH_TOKENS = {"cpu": 1_024, "cuda": 16_384}  # of the source, padding included
DTYPES = ("float32", "bfloat16", "float16", "int8")

# Of converted models
KIND = "ctranslate2"  # in the cache
# Version of the conversion. Increase it when the files of a converted model change: then models
# in the cache are not used any more.
CONVERTER = 2
# Timeout while another process converts the same model; then it is converted without the cache.
WAIT_S = 60.0
N_POSITIONS = MAX_SUBWORDS + 1_000 + 1  # with the largest `max_extra_tokens` and an EOS


class CTranslate2Engine(Engine):
    """A converted model in memory."""

    name = "ctranslate2"

    def __init__(
        self, load_model: Callable[[], ctranslate2.Translator], n_tokens: int, n_rows: int
    ) -> None:
        """Load a model.

        Args:
            load_model: Loads the model. It is called once more in a forked child process.
            n_tokens: Size of the vocabulary.
            n_rows: Number of embeddings, at least `n_tokens`.
        """
        self._load_model = load_model
        self.device = self._translator.device
        self._n_rows = n_rows
        self._forbidden = [PAD_ID, BOS_ID, UNK_ID, *range(n_tokens, n_rows)]
        _engines.add(self)

    @classmethod
    def load(cls, bundle: Bundle, device: str, dtype: str, cache: Path) -> "CTranslate2Engine":
        """Load the model of a bundle.

        Args:
            dtype: One of `DTYPES`.
            cache: The folder of converted models. A missing model is added to it.

        Raises:
            UserError: The device or the data type is not supported, or the model cannot be
                converted.
        """
        kind, index = find_device(device)
        supported = ctranslate2.get_supported_compute_types(kind, index)
        if dtype not in supported:
            others = " or ".join(other for other in DTYPES if other in supported)
            processor = "CPU" if kind == "cpu" else "GPU"
            raise UserError(
                f"CTranslate2 does not support {dtype} on this {processor}; use --dtype {others}"
            )
        converted = convert_once(bundle, dtype, cache)
        load_model = partial(open_model, converted, kind, index, dtype)
        return cls(load_model, bundle.text.subword.n_tokens, bundle.description.n_rows)

    def abandon_model(self) -> None:
        """Reload the model at its next use, in a process that has been forked.

        A fork does not copy the threads of CTranslate2, and the destructor of a model would wait
        for them without end. So the inherited model is leaked.
        """
        if "_translator" in self.__dict__:
            # One reference more than there are names: the destructor never runs.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.__dict__.pop("_translator")))

    @cached_property
    def _translator(self) -> ctranslate2.Translator:
        return self._load_model()

    def translate(
        self, sources: Sentences, decoding: DecodingConfig, n_best: int, advance: Advance
    ) -> list[list[Hypothesis]]:
        """Translate sentences, as specified by `Engine.translate`.

        CTranslate2 forbids a token before the softmax, and changes the probabilities of the
        others. The first search therefore forbids none and drops hypotheses with forbidden tokens.
        Only sentences that are left with too few are searched a second time, without those tokens.
        """
        is_allowed = set(self._forbidden).isdisjoint
        results = []
        for hypotheses in self._search(sources, decoding, [], advance):
            results.append([best for best in hypotheses if is_allowed(best.tokens)])
        incomplete = [i for i, hypotheses in enumerate(results) if len(hypotheses) < n_best]
        second = self._search(
            [sources[i] for i in incomplete], decoding, self._forbidden, lambda _: None
        )
        for i, hypotheses in zip(incomplete, second, strict=True):
            results[i] = hypotheses
        return [hypotheses[:n_best] for hypotheses in results]

    def sample(
        self, sources: Sentences, decoding: DecodingConfig, sampling: Sampling, advance: Advance
    ) -> list[Hypothesis]:
        """Draw translations, as specified by `Engine.sample`.

        The seed takes effect in threads of CTranslate2 that have not drawn anything before. Which
        of them draws which sentence is not defined.
        """
        ctranslate2.set_random_seed(sampling.seed)
        greedy = decoding.model_copy(update={"beam_size": 1})
        # Tokens that are never produced have no share of the probabilities that are drawn from.
        results = self._search(sources, greedy, self._forbidden, advance, sampling)
        return [hypotheses[0] for hypotheses in results]

    def force(self, sources: Sentences, targets: Sentences, *, align: bool) -> list[ForcedDecoding]:
        """Compute log-probabilities, as specified by `Engine.force`; alignments are refused."""
        if align:
            raise UserError("CTranslate2 does not compute alignments; use --engine torch")
        results = self._translator.score_batch(
            _token_names(sources),
            _token_names(targets),
            max_batch_size=BATCH_TOKENS[self.device],
            batch_type="tokens",
            max_input_length=0,  # no limit
        )
        return [ForcedDecoding(result.log_probs, []) for result in results]

    def _search(
        self,
        sources: Sentences,
        decoding: DecodingConfig,
        forbidden: list[int],
        advance: Advance,
        sampling: Sampling | None = None,
    ) -> list[list[Hypothesis]]:
        """Search for the hypotheses of sentences.

        CTranslate2 has one maximum length for a batch, and needs no EOS there. Hypotheses that are
        longer than their own source allows are cut to that length. Their log-probabilities are then
        computed by forced decoding, and so are those of all hypotheses if tokens are forbidden.
        With a vocabulary map, other log-probabilities are relative to the candidates.

        Args:
            sources: Ids of the sentences, with EOS.
            decoding: Beam size, length penalty and maximum length.
            forbidden: Ids of tokens that CTranslate2 must not produce.
            advance: Called with the number of sentences that have been translated.
            sampling: Draw one hypothesis per sentence at random instead, with a beam size of 1.

        Returns:
            The hypotheses by sentence, best first.
        """
        alpha = decoding.length_penalty
        # Sentences of similar lengths share a batch, with little padding.
        by_length = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        hypotheses_by_source: list[list[Hypothesis]] = [[] for _ in sources]
        # Sentences and their translations without a valid log-probability, in order. Several
        # translations may be equal once they are cut.
        unrated: dict[tuple[int, tuple[int, ...]], None] = {}
        ordered = [sources[i] for i in by_length]
        results = self._results(ordered, decoding, forbidden, sampling)
        for i, result in zip(by_length, results, strict=True):
            max_length = decoding.max_target_length(len(sources[i]) - 1)
            for tokens, score in zip(result.hypotheses, result.scores, strict=True):
                ids = [int(token) for token in tokens if token != END]
                has_eos = len(ids) < len(tokens)
                if not has_eos or len(ids) > max_length or forbidden:
                    unrated[i, tuple(ids[:max_length])] = None
                else:
                    # CTranslate2 divides by the length to the power of alpha.
                    log_prob = score * len(tokens) ** alpha
                    hypotheses_by_source[i].append(Hypothesis.from_tokens(ids, log_prob, decoding))
            advance(1)

        unrated_sources = [sources[i] for i, _ in unrated]
        unrated_targets = [target for _, target in unrated]
        forced_decodings = self.force(unrated_sources, unrated_targets, align=False)
        for (i, target), forced in zip(unrated, forced_decodings, strict=True):
            log_prob = sum(forced.log_probs)
            hypotheses_by_source[i].append(Hypothesis.from_tokens(list(target), log_prob, decoding))
        for hypotheses in hypotheses_by_source:
            hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
        return hypotheses_by_source

    def _results(
        self,
        sources: Sentences,
        decoding: DecodingConfig,
        forbidden: list[int],
        sampling: Sampling | None,
    ) -> Iterator[ctranslate2.TranslationResult]:
        """Yield the results of sentences.

        Args:
            sources: Ids of the sentences, by decreasing length.
            decoding: Beam size, length penalty and maximum length.
            forbidden: Ids of tokens that CTranslate2 must not produce.
            sampling: How tokens are drawn; None for beam search.
        """
        options: dict[str, Any] = {}
        if sampling is not None:
            # For CTranslate2, 0 is the whole vocabulary, and more is an error.
            is_limited = sampling.top_k is not None and sampling.top_k < self._n_rows
            options["sampling_topk"] = sampling.top_k if is_limited else 0
            options["sampling_temperature"] = sampling.temperature
        beam_size = decoding.beam_size
        alpha = decoding.length_penalty
        patience = search_patience(decoding)
        # Only a few batches are queued: a search that has begun cannot be stopped.
        queued: deque[list[ctranslate2.AsyncTranslationResult]] = deque()
        while sources:
            n = max(1, BATCH_TOKENS[self.device] // len(sources[0]))
            batch = sources[:n]
            sources = sources[n:]
            if len(queued) > self._translator.num_translators:
                for pending in queued.popleft():
                    yield pending.result()
            queued.append(
                self._translator.translate_batch(
                    _token_names(batch),
                    asynchronous=True,
                    beam_size=beam_size,
                    patience=patience,
                    num_hypotheses=int(beam_size * patience),
                    length_penalty=alpha,
                    max_input_length=0,  # no limit
                    min_decoding_length=0,
                    max_decoding_length=decoding.max_target_length(len(batch[0]) - 1),
                    suppress_sequences=[[str(id_)] for id_ in forbidden],
                    return_end_token=True,
                    return_scores=True,
                    # Without effect if the model has no vocabulary map.
                    use_vmap=sampling is None,
                    **options,
                )
            )
        for results in queued:
            for pending in results:
                yield pending.result()


def search_patience(decoding: DecodingConfig) -> float:
    """Return the number of finished hypotheses that end a search, in multiples of the beam size.

    With a larger alpha, longer hypotheses have higher scores, and are found later.
    """
    if decoding.beam_size == 1:
        return 1.0
    return 1.5 if decoding.length_penalty <= 1 else 2.0


_engines: WeakSet[CTranslate2Engine] = WeakSet()


def _abandon_models() -> None:
    """Abandon the models that a forked child process has inherited."""
    for engine in _engines:
        engine.abandon_model()


os.register_at_fork(after_in_child=_abandon_models)


def _token_names(sentences: Sentences) -> list[list[str]]:
    """Return the tokens of sentences: in a converted model, the name of a token is its id."""
    return [list(map(str, ids)) for ids in sentences]


# Converted models


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
    if VOCABULARY_MAP in files:
        key["vocabulary_map"] = files[VOCABULARY_MAP].sha256
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
    vocabulary_map = bundle.vocabulary_map()
    if vocabulary_map is not None:
        vocabulary_map.write(folder / VOCABULARY_MAP, names)


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
    # CTranslate2 changes the number of OpenMP threads of its caller, and torch would use it.
    with ThreadPoolExecutor(1) as executor:
        loading = executor.submit(
            ctranslate2.Translator,
            str(folder),
            device,
            device_index=index,
            compute_type=dtype,
            inter_threads=n_threads() if device == "cpu" else 1,
            intra_threads=1,
        )
    return loading.result()
