"""Data sets of the Hugging Face Hub, through the library `datasets` and its cache on the disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from logging import CRITICAL
from pathlib import Path
from typing import Any

from nmtkit.errors import UserError

ROWS_PER_BATCH = 1_000


def read_rows(
    repository: str, revision: str, subset: str, split: str, languages: tuple[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield (src, tgt) of every row, in order, from the column `translation`.

    The files are memory-mapped, and a line feed becomes a space. The repository is downloaded once;
    no network is needed while the cache holds it. The environment variables of `datasets` apply,
    such as HF_HOME, HF_HUB_OFFLINE and HF_DATASETS_OFFLINE.

    Args:
        repository: such as "wmt/wmt14".
        revision: the full hash of a commit.

    Raises:
        UserError: the repository, revision, subset, split or a language is not available, or a
            row lacks a text.
    """
    datasets = _import_datasets()
    where = f"{subset} of {repository} at {revision}"
    with _errors(datasets, where):
        rows = _rows(_builder(datasets, repository, revision, subset), split, where)
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

    for library in (datasets, huggingface_hub):  # print nothing: errors are raised
        library.utils.disable_progress_bars()
        library.utils.logging.set_verbosity(CRITICAL)
    return datasets


@contextmanager
def _errors(datasets: Any, where: str) -> Iterator[None]:
    """Turn what the libraries raise into a UserError."""
    try:
        yield
    except UserError:
        raise
    except ConnectionError as error:
        raise UserError(
            f"{where} is not in the cache, and the Hugging Face Hub is unreachable: "
            f"{_first_line(error)}; load it once while online"
        ) from None
    except datasets.exceptions.DatasetGenerationError as error:  # has no useful message itself
        reason = _first_line(error.__cause__ or error)
        raise UserError(f"cannot load {where}: {reason}") from None
    except Exception as error:  # noqa: BLE001 - the libraries have no common base class
        raise UserError(f"cannot load {where}: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _builder(datasets: Any, repository: str, revision: str, subset: str) -> Any:
    """Return a builder that finds the data in the cache, or can download them.

    `datasets` by itself asks the Hub and, if there is no answer, takes any revision in the cache.
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


def _rows(builder: Any, split: str, where: str) -> Any:
    """Return the rows of a split as Arrow tables, downloaded if necessary."""
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
