"""nmtkit plan: what a recipe would do and cost on this machine; changes nothing."""

from typing import TYPE_CHECKING, Any

from nmtkit import progress
from nmtkit.cli.options import command
from nmtkit.cli.status import states
from nmtkit.duration import duration
from nmtkit.model.cost import training_flops
from nmtkit.model.weights import count_parameters
from nmtkit.reporting.code import code_notes
from nmtkit.reporting.cost import (
    BY_TIME,
    COUNTED,
    by_time,
    device_name,
    training_cost,
)
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show
from nmtkit.sources.download import find, known_bytes
from nmtkit.stages.chain import Chain

if TYPE_CHECKING:
    from nmtkit.training.distributed import Group

Facts = dict[str, Any]  # as --json prints them

TRIAL_SECONDS = 8.0


@command("nmtkit plan demo", "mirror", "device", "max_tokens", "processes", "dtype", "accelerate")
def plan(chain: Chain, form: Form) -> None:
    from nmtkit.stages.train import start_processes
    from nmtkit.training.distributed import join

    # As many processes as would train are timed together; the first of them prints.
    if start_processes(chain, ["plan", *chain.machine.options(), *form.options()]):
        return
    with join(chain.machine.torch_device()) as group:
        progress.console.quiet |= not group.is_first
        planned = work_out(chain, group)
        if group.is_first:
            show(form, planned, parts_of(planned))


def work_out(chain: Chain, group: "Group", trial_seconds: float = TRIAL_SECONDS) -> Facts:
    """Work out what `nmtkit run` would do, as one of the processes that would train."""
    from nmtkit.cli.trial import measure_speed, text_of
    from nmtkit.stages.train import setup_of
    from nmtkit.training.checkpoint import checkpoints_bytes
    from nmtkit.training.setup import enough_memory

    recipe, training, machine = chain.recipe, chain.recipe.training, chain.machine
    text = text_of(chain)
    n_rows = recipe.model.rows_for(text.n_tokens)
    n_parameters = count_parameters(recipe.model, n_rows).total
    flops = training_flops(recipe.model, training, n_rows)
    devices = f"{group.size} processes, each " if group.size > 1 else ""
    devices += group.device.type
    progress.say(
        f"plan: measuring the speed of training on {devices}, for at most {trial_seconds:.0f} s "
        "after a first step"
    )
    setup = setup_of(chain, group)
    with enough_memory(group.device, setup.max_tokens):
        speed = measure_speed(setup.trainer(text.pairs, n_rows), trial_seconds)
    disk_bytes = 4 * n_parameters  # of the bundle
    corpora = [corpus for corpora in chain.corpora.values() for corpus in corpora]
    if chain.find("prepare") is None:
        disk_bytes += sum(corpus.prepared_bytes(machine.downloads_dir) for corpus in corpora)
    if chain.find("train") is None:
        disk_bytes += checkpoints_bytes(training, n_parameters)
    files = {file.url: file for corpus in corpora for file in corpus.downloads}
    folder = machine.downloads_dir
    downloads: list[Facts] = [
        {
            "url": url,
            "n_bytes": known_bytes(file, folder),  # None: nobody published it
            "is_here": find(file, folder, machine.mirror) is not None,
        }
        for url, file in files.items()
    ]
    to_fetch = sum(each["n_bytes"] or 0 for each in downloads if not each["is_here"])
    seconds = training.max_steps * training.tgt_tokens_per_update / speed
    return {
        "recipe": recipe.name,
        "stages": states(chain),
        "downloads": downloads,
        "download_bytes": to_fetch,  # still
        "disk_bytes": to_fetch + disk_bytes,  # about, of what is still to be made
        "vocabulary_is_known": not text.is_made_up,
        "n_parameters": n_parameters,
        "update_flops": flops / training.max_steps,
        "device": devices,
        "tgt_tokens_per_second": speed,
        "cost": training_cost(seconds, group.size, device_name(group.device), flops),
    }


def parts_of(plan: Facts) -> list[Grid | str]:
    stages = [
        (each.stage, "no" if each.state == "fresh" else "yes", each.why) for each in plan["stages"]
    ]
    downloads = []
    for each in plan["downloads"]:
        n_bytes = "unknown" if each["n_bytes"] is None else f"{each['n_bytes']:,}"
        downloads.append((each["url"], "there" if each["is_here"] else "to fetch", n_bytes))
    about = "" if plan["vocabulary_is_known"] else "about "
    rows = [
        ("to download", f"{plan['download_bytes']:,} bytes"),
        ("disk, downloads included", f"about {plan['disk_bytes'] / 2**30:.1f} GiB"),
        ("parameters", f"{about}{plan['n_parameters']:,}"),
        ("speed here", f"{plan['tgt_tokens_per_second']:,.0f} target tokens/s on {plan['device']}"),
        ("training here", f"about {duration(plan['cost'].seconds)}"),
        (BY_TIME, f"{'about ' if plan['cost'].rate else ''}{by_time(plan['cost'])}"),
        (COUNTED, f"{about}{plan['cost'].product_flops:.2e} FLOPs"),
    ]
    return [
        Grid.of(f"nmtkit plan {plan['recipe']}", ("stage", "would it run?", "why"), stages, 3),
        *code_notes(*(each.other_code for each in plan["stages"])),
        *([Grid.of("downloads", ("url", "state", "bytes"), downloads, 2)] if downloads else []),
        Grid.of("what it takes", ("", ""), rows, 2),
    ]
