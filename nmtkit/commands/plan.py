"""What a recipe would do and cost on this machine; changes nothing."""

from dataclasses import replace

from nmtkit import progress
from nmtkit.artifacts import Artifact
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.model.cost import count_parameters, update_flops
from nmtkit.reporting.facts import Download, Plan
from nmtkit.sources.download import is_here, known_bytes
from nmtkit.stages.chain import INPUTS, Chain, states
from nmtkit.stages.train import acceleration_of, most_tokens, open_pairs, trainer_of
from nmtkit.training.checkpoint import checkpoints_bytes
from nmtkit.training.distributed import Group
from nmtkit.training.made_up import made_up_pairs
from nmtkit.training.metrics import Metrics
from nmtkit.training.trainer import enough_memory

TYPICAL_LENGTH = 30  # subwords of a sentence of news; it only enters attention's small share
PROBE_SECONDS = 2.0  # of steps that measure this machine, at least
FIRST_PAIRS = 8  # of the first of them: some 250 tokens a side


def plan(chain: Chain) -> Plan:
    """Work out what `nmtkit run` would do.

    Raises:
        UserError: the recipe names a corpus or a device that does not exist; the prepared corpus
            was altered.
    """
    recipe = chain.recipe
    prepared = _find(chain, "prepare")
    if prepared is not None:
        n_tokens = PreparedCorpus(prepared).counts().vocabulary
    else:
        n_tokens = chain.expected_vocabulary()
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
    speed, device = _measure(chain, prepared, n_rows)
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
    corpora = [corpus for key in INPUTS["prepare"] for corpus in chain.corpora[key]]
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
    """Prepared text, checkpoints, and a bundle."""
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


def _measure(chain: Chain, prepared: Artifact | None, n_rows: int) -> tuple[float, str]:
    """Target tokens/s of the steps that `train` would make here, and the device.

    They are as large as the recipe's, or what a slow machine can do of one in seconds.
    """
    group = Group(0, 1, chain.machine.torch_device())
    progress.say(f"plan: timing a few steps of training on {group.device}")
    if prepared is not None:
        pairs = open_pairs(PreparedCorpus(prepared), "train")
    else:
        pairs = made_up_pairs(n_rows, chain.recipe.model.max_positions)
    with enough_memory(group.device, most_tokens(chain, group)):
        trainer = trainer_of(chain, group, pairs, n_rows, acceleration_of(chain, group))
        update = next(trainer.updates())
        n_pairs = FIRST_PAIRS

        def step() -> Metrics:
            part = replace(update, pairs=update.pairs[:n_pairs])
            return trainer.step(trainer.work_of(1, part))

        step()  # also pays for setting up
        timed = [step()]
        while sum(metrics.seconds for metrics in timed) < PROBE_SECONDS:
            if n_pairs < len(update.pairs):
                n_pairs *= 4
                timed.clear()
            timed.append(step())
    tgt_tokens, seconds = (
        sum(getattr(metrics, name) for metrics in timed) for name in ("tgt_tokens", "seconds")
    )
    return tgt_tokens / seconds, str(group.device)
