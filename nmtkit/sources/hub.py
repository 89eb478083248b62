"""Data sets of the Hugging Face Hub, through the library `datasets` and its cache on disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from logging import CRITICAL
from pathlib import Path
from typing import Any

from nmtkit.errors import UserError

ROWS_PER_BATCH = 1_000


def read_rows(
    repository: str, revision: str | None, subset: str, split: str, languages: tuple[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield (src, tgt) of every row, in order, from memory-mapped files; a line feed is a space.

    With a revision, the repository is one of the Hub: it is downloaded once, and no network is
    needed while the cache holds it. Without one it is a local folder. The environment variables
    of `datasets` hold, like HF_HOME, HF_HUB_OFFLINE and HF_DATASETS_OFFLINE.

    Raises:
        UserError: repository, revision, subset, split or language is not to be had, or a row
            lacks a text.
    """
    datasets = _import_datasets()
    where = f"{subset} of {repository}" + (f" at {revision}" if revision else "")
    with _errors(datasets, where):
        builder = (
            _hub_builder(datasets, repository, revision, subset)
            if revision
            else _local_builder(datasets, repository, subset)
        )
        rows = _rows(builder, split, where)
    columns = _columns(rows, languages, where)
    number = 0
    for batch in rows.iter(ROWS_PER_BATCH):
        texts = batch.flatten().select(columns)
        for src, tgt in zip(*(column.to_pylist() for column in texts), strict=True):
            number += 1
            if src is None or tgt is None:
                column = columns[src is not None]
                raise UserError(f"{where}: row {number:,} of {split} has no {column}")
            yield src.replace("\n", " "), tgt.replace("\n", " ")


def _import_datasets() -> Any:
    import datasets
    import huggingface_hub

    for library in (datasets, huggingface_hub):  # what matters is raised, not printed
        library.utils.disable_progress_bars()
        library.utils.logging.set_verbosity(CRITICAL)
    return datasets


@contextmanager
def _errors(datasets: Any, where: str) -> Iterator[None]:
    """Make one sentence of what the libraries raise."""
    try:
        yield
    except UserError:
        raise
    except ConnectionError as error:
        raise UserError(
            f"{where} is not in the cache, and the Hugging Face Hub is not reached: "
            f"{_first_line(error)}; load it once while online"
        ) from None
    except datasets.exceptions.DatasetGenerationError as error:  # says nothing itself
        reason = _first_line(error.__cause__ or error)
        raise UserError(f"cannot load {where}: {reason}") from None
    except Exception as error:  # noqa: BLE001 - the libraries below have none in common
        raise UserError(f"cannot load {where}: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _hub_builder(datasets: Any, repository: str, revision: str, subset: str) -> Any:
    """Return what finds the data in the cache, or can bring them there.

    `datasets` by itself asks the Hub, and if that is silent takes any revision from the cache.
    """
    from datasets.packaged_modules.cache.cache import Cache

    name = repository.rpartition("/")[2]
    cached = Cache(dataset_name=name, repo_id=repository, config_name=subset, hash=revision)
    if Path(cached.cache_dir).is_dir():
        return cached
    builder = datasets.load_dataset_builder(
        f"hf://datasets/{repository}", subset, revision=revision
    )
    if builder.hash != revision:
        raise ConnectionError(f"what the cache has is revision {builder.hash}")
    return builder


def _local_builder(datasets: Any, repository: str, subset: str) -> Any:
    if not Path(repository).is_dir():
        raise UserError(
            f"{repository} is no folder; if it is a repository of the Hugging Face Hub, give the "
            f"revision too"
        )
    found = datasets.load_dataset_builder(repository, subset)
    # Its cache takes a folder for another of the same name, or for itself before it changed. That
    # of a list of files goes by their paths and times.
    return datasets.load_dataset_builder(found.name, data_files=found.config.data_files)


def _rows(builder: Any, split: str, where: str) -> Any:
    """Return the rows of a split, downloaded if need be, in batches of Arrow's."""
    splits = list(builder.info.splits or builder.config.data_files or ())
    if split not in splits:
        raise UserError(f"{where} has no split {split}; it has {', '.join(splits) or 'none'}")
    builder.download_and_prepare()
    return builder.as_dataset(split).with_format("arrow")


def _columns(rows: Any, languages: tuple[str, str], where: str) -> list[str]:
    """Return the flat names of the columns with the texts of the languages."""
    schema = rows[:0].flatten().schema
    known = [field.name for field in schema if str(field.type) in ("string", "large_string")]
    columns = [f"translation.{lang}" for lang in languages]
    for column in columns:
        if column not in known:
            has = ", ".join(known) or "none"
            raise UserError(f"{where} has no texts in a column {column}; it has {has}")
    return columns
