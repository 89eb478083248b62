"""What a recipe would do and cost on this machine; changes nothing."""

import time

from nmtkit import artifacts
from nmtkit.artifacts import Artifact
from nmtkit.model.cost import checkpoints_bytes, count_parameters, update_flops
from nmtkit.reporting.facts import Download, Plan
from nmtkit.sources.download import is_here, known_bytes
from nmtkit.stages.chain import Chain, states

TYPICAL_LENGTH = 30  # subwords of a sentence of news; it only enters attention's small share
PROBE_TOKENS = 1_024  # a side, in the two passes that measure this machine


def plan(chain: Chain) -> Plan:
    """Work out what `nmtkit run` would do.

    Raises:
        UserError: the recipe names a corpus or a device that does not exist; the prepared corpus
            was altered.
    """
    recipe = chain.recipe
    prepared = _find(chain, "prepare")
    if prepared is not None:
        artifacts.verify(prepared, "counts.json")
        n_tokens = int(artifacts.read_json(prepared.path / "counts.json")["vocabulary"])
    else:
        n_tokens = recipe.expected_vocabulary()
    n_rows = recipe.model.rows_for(n_tokens)
    n_parameters = count_parameters(recipe.model, n_rows).total
    training = recipe.training
    flops = update_flops(
        recipe.model,
        n_rows,
        training.src_tokens_per_update,
        training.tgt_tokens_per_update,
        TYPICAL_LENGTH,
    )
    speed, device = _measure(chain, n_rows)
    downloads = _downloads(chain)
    to_fetch = sum(download.n_bytes or 0 for download in downloads if not download.is_here)
    return Plan(
        recipe.name,
        states(chain),
        downloads,
        to_fetch,
        to_fetch + _disk_bytes(chain, n_parameters),
        prepared is not None,
        n_parameters,
        flops,
        flops * training.max_steps,
        device,
        speed,
        training.max_steps * training.tgt_tokens_per_update / speed,
    )


def _find(chain: Chain, stage: str) -> Artifact | None:
    """The artifact of `stage`; none while a download has to come for its hash to be known."""
    corpora = [corpus for split in chain.corpora.values() for corpus in split]
    if any(corpus.downloads_of_unknown_hash(chain.machine.downloads_dir) for corpus in corpora):
        return None
    return chain.find(stage)


def _downloads(chain: Chain) -> list[Download]:
    remote = {
        file.url: file
        for corpora in chain.corpora.values()
        for corpus in corpora
        for file in corpus.downloads
    }
    return [
        Download(
            url,
            known_bytes(file, chain.machine.downloads_dir),
            is_here(file, chain.machine.downloads_dir, chain.machine.mirror),
        )
        for url, file in remote.items()
    ]


def _disk_bytes(chain: Chain, n_parameters: int) -> int:
    """Prepared text, checkpoints (weights and two moments), and a bundle."""
    text = 0
    if _find(chain, "prepare") is None:
        text = sum(
            corpus.prepared_bytes(chain.machine.downloads_dir)
            for corpora in chain.corpora.values()
            for corpus in corpora
        )
    checkpoints = 0
    if _find(chain, "train") is None:
        checkpoints = checkpoints_bytes(chain.recipe.training, n_parameters)
    return text + checkpoints + 4 * n_parameters


def _measure(chain: Chain, n_rows: int) -> tuple[float, str]:
    """Target tokens/s of a forward and backward pass of the recipe's own model, and the device."""
    import numpy as np
    import torch

    from nmtkit.model.transformer import Transformer
    from nmtkit.symbols import SPECIALS
    from nmtkit.training.acceleration import batch_losses
    from nmtkit.training.batches import Pairs, pack

    device = chain.machine.torch_device()
    model = Transformer(chain.recipe.model, n_rows, chain.machine.torch_dtype()).to(device)
    n_pairs = PROBE_TOKENS // TYPICAL_LENGTH
    ids = (
        np.random.default_rng(0)
        .integers(len(SPECIALS), n_rows, n_pairs * TYPICAL_LENGTH)
        .astype(np.uint32)
    )
    offsets = np.arange(n_pairs + 1, dtype=np.int64) * TYPICAL_LENGTH
    batch = pack(Pairs(ids, offsets, ids, offsets), np.arange(n_pairs)).to(device)
    seconds = float("inf")
    for _ in range(2):  # the first one also pays for setting up
        begin = time.perf_counter()
        batch_losses(model, batch, 0.1)[0].backward()  # type: ignore[no-untyped-call]
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = min(seconds, time.perf_counter() - begin)
    return n_pairs * TYPICAL_LENGTH / seconds, str(device)
