"""Data sets of Hugging Face, through the library `datasets`: of the Hub, or in a folder."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from logging import CRITICAL
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from nmtkit.errors import UserError
from nmtkit.languages import TREE
from nmtkit.sources.source import OfColumns, Row, combined, last_parts, own_path
from nmtkit.sources.text import TextFile
from nmtkit.sources.treebank import normalize
from nmtkit.sources.variants import Variants, listed

ROWS_PER_BATCH = 1_000
REPOSITORY = r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$"

Columns = tuple[str, str]


class HubSource(OfColumns):
    """A data set of the Hugging Face Hub, at a given commit.

    No network is needed while the cache of `datasets` holds it; its environment variables apply.
    """

    key = "huggingface"
    title = "a data set of the Hub"
    trees = (False, True)

    huggingface: Annotated[str, Field(pattern=REPOSITORY)]  # such as "wmt/wmt14"
    subset: str  # such as "de-en"
    split: str  # such as "train"
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]

    def own_name(self) -> str:
        return f"{self.huggingface}-{self.subset}-{self.split}"

    def identity(self, hashes: Sequence[str]) -> list[str]:
        place = [self.huggingface, self.subset, self.split, self.revision]
        return super().identity([*place, *hashes])

    def rows(self, _: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        datasets = _import_datasets()
        where = f"{self.subset} of {self.huggingface} at {self.revision}"
        with _errors(where):
            builder = _builder(datasets, self.huggingface, self.revision, self.subset)
            splits = list(builder.info.splits or builder.config.data_files or ())
            if self.split not in splits:
                raise UserError(f"{where} has no split {self.split}; it has {listed(splits)}")
            builder.download_and_prepare()
            rows = builder.as_dataset(self.split)
        return _texts(rows, self.columns, variants, f"{where}: {self.split}")


class Dataset(OfColumns):
    """A data set on the disk: a folder that `save_to_disk` wrote, a Parquet file, or many."""

    key = "dataset"
    path_keys = ("dataset",)
    title = "a data set"
    form = "Parquet"

    dataset: str
    split: str = "train"  # of a folder that has several

    def files(self) -> list[TextFile]:
        place = own_path(self.dataset)
        if not place.is_dir():
            return [TextFile(place)]
        return [TextFile(path) for path in sorted(place.rglob("*")) if path.is_file()]

    def identity(self, hashes: Sequence[str]) -> list[str]:
        return super().identity([self.split, combined(hashes)])

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        datasets = _import_datasets()
        place = own_path(self.dataset)
        paths = [text.path for text in texts]
        tables = [str(path) for path in paths if path.suffix == ".parquet" or path == place]
        with _errors(self.dataset):
            if tables:
                rows = datasets.load_dataset(
                    "parquet", data_files=tables, split="train", streaming=True
                )
            else:
                rows = datasets.load_from_disk(str(place))
            if isinstance(rows, datasets.DatasetDict):
                if self.split not in rows:
                    raise UserError(f"{place} has no split {self.split}; it has {listed(rows)}")
                rows = rows[self.split]
        return _texts(rows, self.columns, variants, self.dataset)


def _import_datasets() -> Any:
    import datasets
    import huggingface_hub

    for library in (datasets, huggingface_hub):  # print nothing: errors are raised
        library.utils.disable_progress_bars()
        library.utils.logging.set_verbosity(CRITICAL)
    return datasets


@contextmanager
def _errors(where: str) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except ConnectionError as error:
        raise UserError(
            f"{where} is not in the cache, and the Hugging Face Hub is unreachable: "
            f"{_first_line(error)}; load it once while online"
        ) from None
    except Exception as error:  # noqa: BLE001 - the libraries have no common base class
        # A DatasetGenerationError has no useful message itself.
        cause = error.__cause__ if type(error).__name__ == "DatasetGenerationError" else None
        raise UserError(f"cannot load {where}: {_first_line(cause or error)}") from None


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _builder(datasets: Any, repository: str, revision: str, subset: str) -> Any:
    """Return a builder that finds the data in the cache, or can download them."""
    # `datasets` by itself asks the Hub and, if there is no answer, takes any revision in the cache.
    from datasets.packaged_modules.cache.cache import Cache

    name = repository.rpartition("/")[2]
    cached = Cache(dataset_name=name, repo_id=repository, config_name=subset, hash=revision)
    if Path(cached.cache_dir).is_dir():
        return cached
    place = f"hf://datasets/{repository}"
    builder = datasets.load_dataset_builder(place, subset, revision=revision)
    if builder.hash != revision:
        raise ConnectionError(f"what the cache has is revision {builder.hash}")
    return builder


def _texts(rows: Any, columns: Columns | None, variants: Variants, where: str) -> Iterator[Row]:
    number = 0
    for batch in rows.with_format("arrow").iter(ROWS_PER_BATCH):
        table = batch.flatten()
        if number == 0:
            columns = _columns(table.schema, columns, variants, where)
        for src, tgt in zip(*(column.to_pylist() for column in table.select(columns)), strict=True):
            number += 1
            if src is None or tgt is None:
                column = (columns or ())[src is not None]
                raise UserError(f"{where}, row {number:,} has no {column}")
            if variants.langs[1] == TREE:
                yield normalize(tgt, f"{where}, row {number:,}")
            else:
                yield src.replace("\n", " "), tgt.replace("\n", " ")


def _columns(schema: Any, columns: Columns | None, variants: Variants, where: str) -> Columns:
    known = [field.name for field in schema if str(field.type) in ("string", "large_string")]
    if columns is not None:
        for column in columns:
            if column not in known:
                raise UserError(f"{where} has no texts in column {column}; it has {listed(known)}")
        return columns
    remedy = 'name the columns in the recipe, as in columns = ["source", "target"]'
    src, tgt = variants.choose_columns(last_parts(known), where, remedy, known)
    return known[src], known[tgt]
