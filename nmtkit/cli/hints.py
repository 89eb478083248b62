"""Hints for options and arguments that users of other toolkits guess."""

from collections.abc import Container, Sequence
from itertools import zip_longest
from pathlib import Path

# The options that replace some of other toolkits.
OTHER_OPTIONS = {
    "--gpus": "pass --processes N, one for each GPU",
    "--num-gpus": "pass --processes N, one for each GPU",
    "--resume": "to resume an interrupted run, repeat its command without --resume",
}
# The values of recipes that replace options of other toolkits, and remarks on them.
OTHER_VALUES = {
    "--batch-size": ("training.src_tokens_per_update=4096", "tokens; also tgt_tokens_per_update"),
    "--epochs": ("training.max_steps=10000", "in updates"),
    "--learning-rate": ("training.learning_rate_scale=0.5", "a factor of the schedule"),
    "--lr": ("training.learning_rate_scale=0.5", "a factor of the schedule"),
}
# Options of `nmtkit new`, by the suffix of a file.
TEXT_OPTIONS = {
    ".csv": "--csv",
    ".jsonl": "--jsonl",
    ".parquet": "--dataset",
    ".tmx": "--tmx",
    ".tsv": "--tsv",
    ".zip": "--opus-zip",
}


def option_hint(args: Sequence[str], options: Container[str]) -> str | None:
    """Return a message for the first option that is a value of recipes, or has another name here.

    Args:
        args: The words after the name of the command.
        options: The options of the command.
    """
    for i, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if not name.startswith("--") or name in options:
            continue
        if not equals:
            value = args[i + 1] if i + 1 < len(args) else ""
        if name in OTHER_OPTIONS and "--processes" in options:
            return f"No such option: {name}; {OTHER_OPTIONS[name]}"
        setting = _recipe_setting(name, value)
        if name in OTHER_VALUES:
            setting, remark = OTHER_VALUES[name]
            setting += f" ({remark})"
        if setting is not None:
            command = "" if "--set" in options else "`nmtkit run` with "
            return f"{name} is a value of recipes; use {command}--set {setting}"
    return None


def _recipe_setting(option: str, value: str) -> str | None:
    """Return the value of --set for an option that has the name of a key of recipes."""
    # Imports pydantic; a valid command line need not wait for it here.
    from nmtkit.config.model import ModelConfig
    from nmtkit.config.recipe import TrainingConfig

    key = option.removeprefix("--").replace("-", "_")
    if key in TrainingConfig.model_fields:
        return f"training.{key}={value or 'VALUE'}"
    if key in ModelConfig.model_fields:
        return f"model.{key}={value or 'VALUE'}"
    return None


def argument_hint(command: str, args: Sequence[str]) -> str:
    """Return a message for arguments that a command does not have.

    Args:
        command: The name of the command.
        args: The unexpected arguments.
    """
    message = f"Got unexpected extra argument(s) ({' '.join(args)})"
    if command == "new":
        return f"{message}; pass {' '.join(_text_options(args))}"
    if command == "translate":
        return f"{message}; to translate a text, pass --recipe RECIPE -i {args[0]}"
    return message


def hub_hint(path: str) -> str:
    """Return the command that downloads a model, for a path like Helsinki-NLP/opus-mt-en-de."""
    owner, slash, name = path.partition("/")
    if not slash or "/" in name or Path(owner or "/").exists():
        return ""
    return f", or download it from the Hugging Face hub: hf download {path} --local-dir {name}"


def _text_options(paths: Sequence[str]) -> list[str]:
    """Return the options of `nmtkit new` for texts that were passed without any."""
    options = []
    pair = []
    for path in paths:
        option = TEXT_OPTIONS.get(Path(path.removesuffix(".gz")).suffix.lower())
        if option is None:
            pair.append(path)
        else:
            options += [option, path]
    for option, path in zip_longest(("--src", "--tgt"), pair[:2], fillvalue="FILE"):
        options += [option, path] if pair else []
    return options
