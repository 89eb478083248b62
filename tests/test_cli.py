"""What the command line makes of its arguments."""

import inspect
from dataclasses import fields
from pathlib import Path

import pytest

from nmtkit import cli
from nmtkit.artifacts import Artifact, Manifest
from nmtkit.machine import OF_PREPARE, Machine, Precision
from nmtkit.stages import train
from nmtkit.stages.chain import Chain

# No field has its default value.
MACHINE = Machine(
    runs_dir=Path("-my runs"),
    mirror=Path("mirror"),
    device="cuda:1",
    max_tokens=77,
    workers=5,
    processes=3,
    dtype=Precision.BFLOAT16,
    deterministic=True,
    tensorboard=Path("-board"),
)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Chain]:
    """What `nmtkit train` is asked to train, instead of training it."""
    chains: list[Chain] = []

    def run(chain: Chain) -> Artifact:
        chains.append(chain)
        return Artifact(Path("path"), Manifest(format=1, files={}, kind="train", made_by={}))

    monkeypatch.setattr(train, "run", run)
    return chains


def test_train_options_tell_another_process_the_whole_machine(trained: list[Chain]) -> None:
    taken = set(inspect.signature(cli.train).parameters) & {each.name for each in fields(Machine)}
    assert taken == {each.name for each in fields(Machine)} - set(OF_PREPARE)
    cli.app(["train", *MACHINE.train_options(), "--", "demo"], standalone_mode=False)
    told = vars(trained[0].machine)
    for name in taken:
        default = Machine.__dataclass_fields__[name].default
        assert told[name] == vars(MACHINE)[name] != default


def test_a_machine_of_defaults_takes_its_runs_dir_alone(trained: list[Chain]) -> None:
    assert Machine(Path("runs")).train_options() == ["--runs-dir=runs"]
    cli.app(["train", "demo"], standalone_mode=False)
    assert trained[0].machine == Machine(Path("runs"))
