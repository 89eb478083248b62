"""Data sets of Hugging Face, read by the library `datasets`: of the Hub, or in a folder."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import escape
from itertools import chain
from logging import CRITICAL
from os.path import normpath
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from nmtkit.sources.sides import choose_columns
from nmtkit.sources.source import (
    DETECTED,
    ColumnSource,
    Row,
    combine_hashes,
    expand_path,
    last_parts,
)
from nmtkit.sources.text import TextFile
from nmtkit.sources.treebank import normalize
from nmtkit.sources.variants import Variants
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import TREE
from nmtkit.utils.text import join_names

ROWS_PER_BATCH = 1_000
REPOSITORY = r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$"

Columns = tuple[str, str]


class HubSource(ColumnSource):
    """A data set of the Hugging Face Hub at one commit.

    No network is needed if it is in the cache of `datasets`, whose environment variables apply.
    """

    key = "huggingface"
    title = "a data set of the Hub"
    trees = (False, True)

    huggingface: Annotated[str, Field(pattern=REPOSITORY)]  # such as "wmt/wmt14"
    subset: str  # such as "de-en"
    split: str  # such as "train"
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]

    def default_name(self) -> str:
        """Return the repository with the subset and the split."""
        return f"{self.huggingface}-{self.subset}-{self.split}"

    def identity(self, hashes: Sequence[str]) -> list[str]:
        """Return the values that determine the text; there are no hashes of files."""
        place = [self.huggingface, self.subset, self.split, self.revision]
        return super().identity(place + list(hashes))

    def rows(self, _: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield the two columns of all rows; see `Source.rows`."""
        datasets = _import_datasets()
        where = f"{self.subset} of {self.huggingface} at {self.revision}"
        with _errors(where):
            builder = _builder(datasets, self.huggingface, self.revision, self.subset)
            # If the card does not list the splits, they are those of the data files.
            splits = list(builder.info.splits or builder.config.data_files or ())
            if self.split not in splits:
                raise UserError(f"{where} has no split {self.split}; it has {join_names(splits)}")
            builder.download_and_prepare()  # does nothing if the cache has them
            rows = builder.as_dataset(self.split)
        return _texts(rows, self.columns, variants, f"{where}: {self.split}")


class Dataset(ColumnSource):
    """A data set on disk: a Parquet file, or a folder of Parquet files or of `save_to_disk`.

    The splits of a folder of Parquet are those that `datasets.load_dataset` finds: by the names of
    its files, or as its card (README.md) declares them.
    """

    key = "dataset"
    path_keys = ("dataset",)
    title = "a data set"
    form = "Parquet"

    dataset: str
    split: str = "train"  # of a folder

    def files(self) -> list[TextFile]:
        """Return the file, or all files of the folder that are not hidden."""
        place = expand_path(self.dataset)
        if not place.is_dir():
            return [TextFile(place)]
        files = []
        for path in sorted(place.rglob("*")):
            if path.is_file() and not _is_hidden(path.relative_to(place)):
                files.append(TextFile(path))
        return files

    def identity(self, hashes: Sequence[str]) -> list[str]:
        """Return the values that determine the text: the split, and one hash of all files."""
        return super().identity([self.split, combine_hashes(hashes)])

    @classmethod
    def names_in(cls, path: str, _dialect: Mapping[str, Any] = DETECTED) -> Sequence[str]:
        """Return the columns of text in a user's data set."""
        source = cls(dataset=path)
        for table in _tables(source._open(source.files())):
            return _text_columns(table.schema)
        return ()

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield the two columns of all rows of the split; see `Source.rows`."""
        return _texts(self._open(texts), self.columns, variants, self.dataset)

    def _open(self, texts: Sequence[TextFile]) -> Any:
        """Return the rows of the split, which the library reads."""
        datasets = _import_datasets()
        place = expand_path(self.dataset)
        with _errors(self.dataset):
            if not place.is_dir():
                self._check_split(["train"])
                rows = _read_parquet(datasets, [str(place)])
            elif any(text.path.suffix == ".parquet" for text in texts):
                files = _split_files(place)
                self._check_split(list(files))
                _check_folders(files[self.split], place)
                rows = _read_parquet(datasets, files[self.split])
            else:
                rows = datasets.load_from_disk(str(place))
                if isinstance(rows, datasets.DatasetDict):
                    self._check_split([str(split) for split in rows])
                    rows = rows[self.split]
                elif "split" in self.model_fields_set:
                    # A single split may have any name, unless the user expects one.
                    self._check_split([str(rows.split or "train")])
        return rows

    def _check_split(self, splits: Sequence[str]) -> None:
        """Check that the split exists."""
        if self.split not in splits:
            raise UserError(
                f"{self.dataset} has no split {self.split} (it has {join_names(splits)}); set one "
                f'of them, as in {{ dataset = "{self.dataset}", split = "{splits[0]}" }}'
            )


def _is_hidden(path: Path) -> bool:
    """Return whether a file is hidden, or in a hidden folder such as .cache."""
    return any(part.startswith(".") for part in path.parts)


def _read_parquet(datasets: Any, files: Sequence[str]) -> Any:
    """Return the rows of Parquet files as a stream, which leaves no copy in a cache.

    Args:
        datasets: The library.
        files: Paths of the files.
    """
    patterns = [escape(file) for file in files]
    return datasets.load_dataset("parquet", data_files=patterns, split="train", streaming=True)


def _split_files(place: Path) -> dict[str, list[str]]:
    """Return the Parquet files of each split of a folder, by the rules of `datasets`.

    They are those of `datasets.load_dataset(place)`, which is not called itself: it would also read
    other formats, download files that a card names, and choose one of several configurations.

    Raises:
        UserError: The folder has several configurations, or its card names files elsewhere.
    """
    from datasets.data_files import DataFilesDict, get_data_patterns, sanitize_patterns

    root = place.resolve()
    # Several configurations may have the same split with other text.
    configurations = _configurations(root)
    if len(configurations) > 1:
        raise UserError(
            f"{place} has several configurations ({join_names(sorted(configurations))}); set the "
            f'folder of one of them, as in dataset = "{place}/{min(configurations)}"'
        )
    # Nothing is downloaded whose hash is not known.
    if "://" in str(configurations):
        raise UserError(
            f"the card of {place} lists files elsewhere; download them, or remove `configs` from "
            "the card"
        )
    configuration: dict[str, Any] = next(iter(configurations.values()), {})

    # Without declared files, `datasets` detects splits in the names of files and folders.
    base = normpath(root / configuration.get("data_dir", ""))
    declared = configuration.get("data_files")
    patterns = sanitize_patterns(declared) if declared else get_data_patterns(base)
    files_by_split = DataFilesDict.from_patterns(
        patterns, base_path=base, allowed_extensions=[".parquet"]
    )
    files: dict[str, list[str]] = {}
    for split, paths in files_by_split.items():
        if paths:
            files[str(split)] = [normpath(path) for path in paths]
    if not files and not declared:
        # Only files of other formats have the names of splits.
        pattern = {"train": ["**/*.parquet"]}
        files["train"] = list(DataFilesDict.from_patterns(pattern, base_path=base)["train"])
    # The fingerprint covers only files of the folder.
    for path in chain.from_iterable(files.values()):
        if not Path(path).is_relative_to(root):
            raise UserError(
                f"the card of {place} lists {path}, which is not in the folder; remove it from "
                "the card"
            )
    return files


def _configurations(place: Path) -> dict[str, Any]:
    """Return the configurations that the card of a folder declares, by their names."""
    from datasets.utils.metadata import MetadataConfigs
    from huggingface_hub import DatasetCard

    configurations: dict[str, Any] = {}
    card = place / "README.md"
    yaml = place / ".huggingface.yaml"
    if card.is_file():
        text = card.read_text(encoding="utf-8")
        configurations |= MetadataConfigs.from_dataset_card_data(DatasetCard(text).data)
    # This file takes precedence over the card, as in `datasets`.
    if yaml.is_file():
        text = f"---\n{yaml.read_text(encoding='utf-8')}\n---\n"
        configurations |= MetadataConfigs.from_dataset_card_data(DatasetCard(text).data)
    return configurations


def _check_folders(files: Sequence[str], place: Path) -> None:
    """Refuse a split in several folders: they may be configurations, which cannot be joined.

    Args:
        files: The Parquet files of the split.
        place: The folder of the data set.
    """
    folders = {Path(file).parent.relative_to(place.resolve()).as_posix() for file in files}
    if len(folders) > 1:
        raise UserError(
            f"{place} has Parquet files in several folders ({join_names(sorted(folders))}), which "
            f'may be configurations; set one of them, as in dataset = "{place}/{max(folders)}"'
        )


def _import_datasets() -> Any:
    """Import `datasets`, which is slow, and silence it: its errors are raised anyway."""
    import datasets
    import huggingface_hub

    for library in (datasets, huggingface_hub):
        library.utils.disable_progress_bars()
        library.utils.logging.set_verbosity(CRITICAL)
    return datasets


@contextmanager
def _errors(where: str) -> Iterator[None]:
    """Turn all errors of the libraries in the block into a UserError about `where`."""
    try:
        yield
    except UserError:
        raise
    except ConnectionError as error:
        raise UserError(
            f"{where} is not in the cache, and the Hugging Face Hub is unreachable "
            f"({_first_line(error)}); load it once while online"
        ) from None
    except Exception as error:  # noqa: BLE001 - the libraries have no common base class
        # A DatasetGenerationError has no useful message itself.
        cause = error.__cause__ if type(error).__name__ == "DatasetGenerationError" else None
        raise UserError(f"cannot load {where}: {_first_line(cause or error)}") from None


def _first_line(error: BaseException) -> str:
    """Return the first line of a message, or the name of the error if it has none."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _builder(datasets: Any, repository: str, revision: str, subset: str) -> Any:
    """Return a builder that finds the data in the cache, or can download them.

    Args:
        datasets: The library.
        repository: Owner and name of the data set.
        revision: Its commit.
        subset: Its configuration.
    """
    # `load_dataset_builder` always connects to the Hub and, if it is unreachable, uses any revision
    # in the cache.
    from datasets.packaged_modules.cache.cache import Cache

    # The folder of a revision exists only if all of its data were prepared.
    name = repository.rpartition("/")[2]
    cached = Cache(dataset_name=name, repo_id=repository, config_name=subset, hash=revision)
    if Path(cached.cache_dir).is_dir():
        return cached
    place = f"hf://datasets/{repository}"
    builder = datasets.load_dataset_builder(place, subset, revision=revision)
    if builder.hash != revision:
        raise ConnectionError(f"what the cache has is revision {builder.hash}")
    return builder


def _tables(rows: Any) -> Iterator[Any]:
    """Yield the rows of a data set as tables of Arrow, in which nested columns have dots."""
    for batch in rows.with_format("arrow").iter(ROWS_PER_BATCH):
        yield batch.flatten()


def _text_columns(schema: Any) -> list[str]:
    """Return the names of the columns that have text."""
    return [field.name for field in schema if str(field.type) in ("string", "large_string")]


def _texts(rows: Any, columns: Columns | None, variants: Variants, where: str) -> Iterator[Row]:
    """Yield the two columns of all rows.

    Args:
        rows: A data set of the library.
        columns: The columns of source and target, if the recipe names them.
        variants: Chooses the columns otherwise.
        where: The data set, for messages.
    """
    number = 0
    for table in _tables(rows):
        if number == 0:
            columns = _columns(table.schema, columns, variants, where)
        assert columns is not None
        src_column, tgt_column = table.select(columns)
        for src, tgt in zip(src_column.to_pylist(), tgt_column.to_pylist(), strict=True):
            number += 1
            # A missing side would shift the lines of one file of the corpus.
            if src is None or tgt is None:
                column = columns[0] if src is None else columns[1]
                raise UserError(f"{where}, row {number:,} has no {column}")
            if variants.langs[1] == TREE:
                yield normalize(tgt, f"{where}, row {number:,}", variants.skipped)
            else:
                yield src.replace("\n", " "), tgt.replace("\n", " ")


def _columns(schema: Any, columns: Columns | None, variants: Variants, where: str) -> Columns:
    """Return the names of the columns of source and target.

    Args:
        schema: The columns of the data set with their types.
        columns: See `_texts`.
        variants: See `_texts`.
        where: See `_texts`.

    Raises:
        UserError: A column does not exist or has no text, or the columns cannot be detected.
    """
    known = _text_columns(schema)
    if columns is not None:
        for column in columns:
            if column not in known:
                raise UserError(
                    f"{where} has no texts in column {column}; it has {join_names(known)}"
                )
        return columns
    remedy = 'set the columns in the recipe, as in columns = ["source", "target"]'
    src, tgt = choose_columns(last_parts(known), variants.langs, where, remedy, known)
    return known[src], known[tgt]
