"""Hints for options and arguments that users of other toolkits guess."""

from collections.abc import Container, Sequence
from itertools import zip_longest
from pathlib import Path

# Options of other toolkits: the option of a command that replaces each, and what to do.
OTHER_OPTIONS = {
    "--beam-size": ("--beam", "pass --beam N"),
    "--bf16": ("--dtype", "pass --dtype bfloat16"),
    "--cpu": ("--device", "pass --device cpu"),
    "--fp16": ("--dtype", "pass --dtype float16"),
    "--gpu": ("--device", "pass --device cuda:0"),
    "--gpus": ("--processes", "pass --processes N, one for each GPU"),
    "--model": ("--bundle", "pass --bundle DIR or --recipe RECIPE"),
    "--ngpus": ("--processes", "pass --processes N, one for each GPU"),
    "--num-gpus": ("--processes", "pass --processes N, one for each GPU"),
    "--resume": ("--force", "to resume an interrupted run, repeat its command without --resume"),
}
# The values of recipes that replace options of other toolkits, and remarks on them.
OTHER_VALUES = {
    "--batch-size": ("training.src_tokens_per_update=4096", "tokens; also tgt_tokens_per_update"),
    "--beam": ("decoding.beam_size=4", ""),
    "--epochs": ("training.max_steps=10000", "in updates"),
    "--learning-rate": ("training.learning_rate_scale=0.5", "a factor of the schedule"),
    "--lr": ("training.learning_rate_scale=0.5", "a factor of the schedule"),
    "--warmup": ("training.warmup_steps=4000", ""),
    "--warmup-updates": ("training.warmup_steps=4000", ""),
}
# Beginnings of the names of public corpora.
COLLECTIONS = ("hub:", "opus:")
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
    """Return a message for the first option that users of other toolkits may have meant otherwise.

    Args:
        args: The words after the name of the command.
        options: The options of the command.
    """
    for i, arg in enumerate(args):
        typed, equals, value = arg.partition("=")
        # A pair of files, or the name of a public set that has an option of its own.
        files = args[i + 1 : i + 3]
        has_set = typed in options and f"{typed}-set" in options
        if has_set and (len(files) < 2 or files[1].startswith("--")):
            name = value or "".join(files[:1]) or "NAME"
            return f"{typed} takes two files; for a public set, pass {typed}-set {name}"
        if not typed.startswith("--") or typed in options:
            continue
        name = typed.replace("_", "-")
        if name in options:
            return f"No such option: {typed}; pass {name}"
        option, remedy = OTHER_OPTIONS.get(name, ("", ""))
        if option in options:
            return f"No such option: {typed}; {remedy}"
        if not equals:
            value = args[i + 1] if i + 1 < len(args) else ""
        setting = _recipe_setting(name, value)
        if name in OTHER_VALUES:
            setting, remark = OTHER_VALUES[name]
            setting += f" ({remark})" if remark else ""
        if setting is not None:
            command = "" if "--set" in options else "`nmtkit run` with "
            return f"{typed} is a value of recipes; use {command}--set {setting}"
    return None


def _recipe_setting(option: str, value: str) -> str | None:
    """Return the value of --set for an option that has the name of a key of recipes."""
    # Imports pydantic; a valid command line need not wait for it here.
    from nmtkit.config.model import DecodingConfig, ModelConfig
    from nmtkit.config.recipe import TrainingConfig

    key = option.removeprefix("--").replace("-", "_")
    keys = {
        "training": TrainingConfig.model_fields,
        "model": ModelConfig.model_fields,
        "decoding": DecodingConfig.model_fields,
    }
    for section, fields in keys.items():
        if key in fields:
            return f"{section}.{key}={value or 'VALUE'}"
    return None


def argument_hint(command: str, args: Sequence[str], options: Container[str]) -> str:
    """Return a message for arguments that a command does not have.

    Args:
        command: The name of the command.
        args: The unexpected arguments.
        options: The options of the command.
    """
    message = f"Got unexpected extra argument(s) ({' '.join(args)})"
    if command == "new":
        return f"{message}; pass {' '.join(_text_options(args))}"
    if command == "translate":
        return f"{message}; to translate a text, pass --recipe RECIPE -i {args[0]}"
    if "--recipe" in options and len(args) == 1:
        option = "--bundle" if Path(args[0]).is_dir() else "--recipe"
        return f"{message}; pass {option} {args[0]}"
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
        if path.startswith(COLLECTIONS) or _is_in_catalog(path):
            options += ["--corpus", path]
            continue
        option = TEXT_OPTIONS.get(Path(path.removesuffix(".gz")).suffix.lower())
        if option is None:
            pair.append(path)
        else:
            options += [option, path]
    for option, path in zip_longest(("--src", "--tgt"), pair[:2], fillvalue="FILE"):
        options += [option, path] if pair else []
    return options


def _is_in_catalog(name: str) -> bool:
    """Return whether the catalog has a corpus of this name."""
    # Imports pydantic.
    from nmtkit.sources.catalog import load_catalog

    return name in load_catalog().corpora
