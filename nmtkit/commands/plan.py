"""What a recipe would do and cost on this machine; changes nothing."""

from nmtkit import progress
from nmtkit.cli.status import states
from nmtkit.commands.trial import TrialText, measure_speed, text_of
from nmtkit.model.cost import training_flops
from nmtkit.model.weights import count_parameters
from nmtkit.reporting.devices import device_name, training_cost
from nmtkit.reporting.facts import Download, Plan
from nmtkit.reporting.tables import print_plan
from nmtkit.sources.download import find, known_bytes
from nmtkit.stages.chain import Chain
from nmtkit.stages.train import say_faster_ways, setup_of, start_processes
from nmtkit.training.checkpoint import checkpoints_bytes
from nmtkit.training.distributed import Group, join
from nmtkit.training.setup import enough_memory

TRIAL_SECONDS = 8.0


def run(chain: Chain, *, as_json: bool) -> None:
    """Print what `nmtkit run` would do.

    As many processes as would train are timed together; the first of them prints.
    """
    options = ["--json"] if as_json else []
    if start_processes(chain, ["plan", *chain.machine.options(), *options]):
        return
    with join(chain.machine.torch_device()) as group:
        progress.console.quiet |= not group.is_first
        planned = plan(chain, group)
        if group.is_first:
            print_plan(planned, as_json=as_json)


def plan(chain: Chain, group: Group) -> Plan:
    """Work out what `nmtkit run` would do, as one of the processes that would train.

    Raises:
        UserError: the recipe names a corpus that does not exist; the prepared corpus was altered;
            there is too little memory.
    """
    recipe, training = chain.recipe, chain.recipe.training
    text = text_of(chain)
    n_rows = recipe.model.rows_for(text.n_tokens)
    n_parameters = count_parameters(recipe.model, n_rows).total
    flops = training_flops(recipe.model, training, n_rows)
    speed = _measure(chain, group, text, n_rows)
    downloads = _downloads(chain)
    to_fetch = sum(download.n_bytes or 0 for download in downloads if not download.is_here)
    return Plan(
        recipe.name,
        states(chain),
        downloads,
        to_fetch,
        to_fetch + _disk_bytes(chain, n_parameters),
        not text.is_made_up,
        n_parameters,
        flops / training.max_steps,
        _devices(group),
        speed,
        training_cost(
            seconds=training.max_steps * training.tgt_tokens_per_update / speed,
            n_devices=group.size,
            device=device_name(group.device),
            product_flops=flops,
        ),
    )


def _measure(chain: Chain, group: Group, text: TrialText, n_rows: int) -> float:
    """Return the target tokens per second of the steps that `train` would make here."""
    progress.say(
        f"plan: measuring the speed of training on {_devices(group)}, for at most "
        f"{TRIAL_SECONDS:.0f} s after a first step"
    )
    setup = setup_of(chain, group)
    say_faster_ways(chain, setup)
    with enough_memory(group.device, setup.max_tokens):
        return measure_speed(setup.trainer(text.pairs, n_rows), TRIAL_SECONDS)


def _devices(group: Group) -> str:
    of_several = f"{group.size} processes, each " if group.size > 1 else ""
    return f"{of_several}{group.device.type}"


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
            find(file, chain.machine.downloads_dir, chain.machine.mirror) is not None,
        )
        for url, file in remote.items()
    ]


def _disk_bytes(chain: Chain, n_parameters: int) -> int:
    """Prepared text, checkpoints, and a bundle."""
    text = 0
    if chain.find("prepare") is None:
        text = sum(
            corpus.prepared_bytes(chain.machine.downloads_dir)
            for corpora in chain.corpora.values()
            for corpus in corpora
        )
    checkpoints = 0
    if chain.find("train") is None:
        checkpoints = checkpoints_bytes(chain.recipe.training, n_parameters)
    return text + checkpoints + 4 * n_parameters
