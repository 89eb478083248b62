"""nmtkit bench layers: the layers of Table 1, timed on this machine."""

from nmtkit import progress
from nmtkit.cli.options import Device, Seconds, command
from nmtkit.machine import RUNS, Machine
from nmtkit.reporting.cost import device_name
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show

# Of each device, the lengths n, and the widths d. Arithmetic takes most of the time.
SIZES = {
    "cpu": ((256, 512, 1_024, 2_048), (256, 512, 1_024)),
    "cuda": ((2_048, 4_096, 8_192, 16_384), (512, 1_024, 2_048)),
}


@command("nmtkit bench layers --device cpu")
def bench_layers(form: Form, seconds: Seconds = 0.5, device: Device = "auto") -> None:
    from nmtkit.cli.bench import LAYER_TYPES, seconds_of

    on = Machine(RUNS, device=device).torch_device()
    lengths, widths = SIZES[on.type]
    groups, value = [], []
    for layer in LAYER_TYPES:
        progress.say(f"bench: {layer}")
        taken = {d: {n: seconds_of(layer, n, d, on, seconds) for n in lengths} for d in widths}
        value.append({"layer": layer, "seconds": taken})
        groups.append(
            [
                (layer, f"{d:,}", *(f"{1e3 * each:,.1f}" for each in taken[d].values()))
                for d in taken
            ]
        )
    title = f"Table 1 on {device_name(on)}: ms forward and backward"
    columns = ("layer", "d", *(f"n = {n:,}" for n in lengths))
    show(form, value, [Grid(title, columns, 1, groups)])
