"""Data sets that the library `datasets` reads: on disk, or of the Hugging Face Hub.

On disk, they are Parquet or a folder of `save_to_disk`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import escape
from itertools import chain, islice
from logging import CRITICAL
from os.path import normpath
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from nmtkit.sources.sides import Variants, choose_columns
from nmtkit.sources.source import (
    DETECTED,
    TEXT,
    ColumnSource,
    Row,
    describe_columns,
    expand_path,
    last_parts,
)
from nmtkit.sources.text_file import TextFile
from nmtkit.sources.treebank import normalize
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import TREE
from nmtkit.utils.text import join_names

REPOSITORY = r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$"
ROWS_PER_BATCH = 1_000
STRING_TYPES = ("string", "large_string", "string_view")  # of Arrow

Columns = tuple[str, str]


class Dataset(ColumnSource):
    """A data set on disk: a Parquet file, or a folder of Parquet files or of `save_to_disk`.

    The splits of a folder of Parquet are those that `datasets.load_dataset` finds: by the names of
    its files, or as its card (README.md) declares them.
    """

    key = "dataset"
    path_keys = ("dataset",)
    title = "a data set"
    form = "Parquet"
    has_option = True
    may_be_folder = True

    dataset: str
    split: str = "train"  # of a folder

    def texts_at(self, places: Sequence[TextFile]) -> list[TextFile]:
        """Return the file, or all files of the folder that are not hidden."""
        [text] = places
        place = text.path
        if not place.is_dir():
            return [text]
        files = []
        for path in sorted(place.rglob("*")):
            names = path.relative_to(place).parts
            is_hidden = any(name.startswith(".") for name in names)  # also in a folder like .cache
            if path.is_file() and not is_hidden:
                files.append(TextFile(path))
        return files

    def identity(self, hashes: Sequence[str]) -> list[str]:
        """Return the values that determine the text: also the split."""
        return super().identity([self.split, *hashes])

    @classmethod
    def types_in(cls, path: str) -> dict[str, str]:
        """Return the columns of a user's data set with the types of their values."""
        source = cls(dataset=path)
        for table in read_tables(source._open(source.files())):
            return column_types(table.schema)
        return {}

    @classmethod
    def sample_in(
        cls, path: str, names: Sequence[str], _dialect: Mapping[str, Any] = DETECTED
    ) -> list[Sequence[str]]:
        """Return the first rows of a user's data set; see `Source.sample_in`."""
        source = cls(dataset=path)
        rows: list[Sequence[str]] = []
        for table in islice(read_tables(source._open(source.files())), 1):
            for row in table.select(list(names)).to_pylist():
                rows.append([row[name] or "" for name in names])
        return rows

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield the two columns of all rows of the split; see `Source.rows`."""
        return read_texts(self._open(texts), self.columns, variants, self.dataset)

    def _open(self, texts: Sequence[TextFile]) -> Any:
        """Let the library read the split, and return its rows."""
        datasets = import_datasets()
        place = expand_path(self.dataset)
        # In the catalog, `dataset` is the name of a download: a file.
        is_folder = all(place in text.path.parents for text in texts)
        with library_errors(self.dataset):
            if not is_folder:
                self._check_split(["train"])
                rows = _read_parquet(datasets, [str(texts[0].path)])
            elif any(text.path.suffix == ".parquet" for text in texts):
                files = _split_files(place)
                self._check_split(list(files))
                # A split in several folders may be configurations of different text.
                root = place.resolve()
                folders = {Path(file).parent.relative_to(root) for file in files[self.split]}
                if len(folders) > 1:
                    names = sorted(folder.as_posix() for folder in folders)
                    raise UserError(
                        f"{place} has Parquet files in several folders ({join_names(names)}), "
                        "which may be configurations; set one of them, as in dataset = "
                        f'"{place}/{names[-1]}"'
                    )
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


def _read_parquet(datasets: Any, files: Sequence[str]) -> Any:
    """Return the rows of Parquet files as a stream, without a copy in a cache.

    Args:
        datasets: The library.
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
        datasets = import_datasets()
        where = f"{self.subset} of {self.huggingface} at {self.revision}"
        with library_errors(where):
            builder = _builder(datasets, self.huggingface, self.revision, self.subset)
            # If the card does not list the splits, they are those of the data files.
            splits = list(builder.info.splits or builder.config.data_files or ())
            if self.split not in splits:
                raise UserError(f"{where} has no split {self.split}; it has {join_names(splits)}")
            builder.download_and_prepare()  # does nothing if the cache has them
            rows = builder.as_dataset(self.split)
        return read_texts(rows, self.columns, variants, f"{where}: {self.split}")


def latest_revision(repository: str) -> str:
    """Return the commit that a data set of the Hub has now.

    Raises:
        UserError: The Hub cannot be reached, or has no such data set.
    """
    import_datasets()
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        return str(HfApi().dataset_info(repository).sha)
    except RepositoryNotFoundError:
        raise UserError(
            f"the Hugging Face Hub has no public data set {repository}; correct the name (OWNER/"
            "NAME)"
        ) from None
    except Exception as error:  # noqa: BLE001 - the library has no common base class
        raise UserError(
            f"cannot ask the Hugging Face Hub for {repository}: {_first_line(error)}; retry when "
            "it can be reached, or download the data set and pass its folder as --dataset"
        ) from None


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
        raise ConnectionError(f"the cache only has revision {builder.hash}")
    return builder


# The library `datasets`: its import, its errors, and columns of text in its data sets


def import_datasets() -> Any:
    """Import `datasets` (slow), and silence it: its errors are raised anyway."""
    import datasets
    import huggingface_hub

    for library in (datasets, huggingface_hub):
        library.utils.disable_progress_bars()
        library.utils.logging.set_verbosity(CRITICAL)
    return datasets


@contextmanager
def library_errors(where: str) -> Iterator[None]:
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


def read_tables(rows: Any) -> Iterator[Any]:
    """Yield the rows of a data set as tables of Arrow. The names of nested columns have dots."""
    for batch in rows.with_format("arrow").iter(ROWS_PER_BATCH):
        yield batch.flatten()


def column_types(schema: Any) -> dict[str, str]:
    """Return the names of columns with the types of their values; `TEXT` if they are strings."""
    types = {}
    for field in schema:
        value_type = str(field.type)
        types[field.name] = TEXT if value_type in STRING_TYPES else value_type
    return types


def read_texts(rows: Any, columns: Columns | None, variants: Variants, where: str) -> Iterator[Row]:
    """Yield the two columns of all rows.

    Args:
        rows: A data set of the library.
        columns: The columns of source and target, if the recipe names them.
        variants: Chooses the columns otherwise.
        where: The data set, for messages.
    """
    number = 0
    for table in read_tables(rows):
        if number == 0:
            columns = _columns(table.schema, columns, variants, where)
        assert columns is not None
        src_column, tgt_column = table.select(columns)
        for src, tgt in zip(src_column.to_pylist(), tgt_column.to_pylist(), strict=True):
            number += 1
            # The words of a treebank are those of the trees.
            texts = {variants.langs[1]: tgt}
            if variants.langs[1] != TREE:
                texts = {variants.langs[0]: src, variants.langs[1]: tgt}
            blank = [lang for lang, text in texts.items() if text is None or not text.strip()]
            if blank:
                variants.skipped[f"with a blank {blank[0]}"] += 1
            elif variants.langs[1] == TREE:
                yield normalize(tgt, f"{where}, row {number:,}", variants.skipped)
            else:
                yield src.replace("\n", " "), tgt.replace("\n", " ")


def _columns(schema: Any, columns: Columns | None, variants: Variants, where: str) -> Columns:
    """Return the names of the columns of source and target.

    Args:
        schema: The columns of the data set with their types.
        columns: See `read_texts`.
        variants: See `read_texts`.
        where: See `read_texts`.

    Raises:
        UserError: A column does not exist or has no text, or the columns cannot be detected.
    """
    types = column_types(schema)
    if columns is not None:
        for column in columns:
            if types.get(column) != TEXT:
                raise UserError(
                    f"{where} has no texts in column {column}; it has {describe_columns(types)}"
                )
        return columns
    known = [column for column, value_type in types.items() if value_type == TEXT]
    remedy = 'set the columns in the recipe, as in columns = ["source", "target"]'
    src, tgt = choose_columns(last_parts(known), variants.langs, where, remedy, known)
    return known[src], known[tgt]
