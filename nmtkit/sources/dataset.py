"""Data sets on disk, read by the library `datasets`: Parquet, or a folder of `save_to_disk`."""

from collections.abc import Iterator, Mapping, Sequence
from glob import escape
from itertools import chain, islice
from os.path import normpath
from pathlib import Path
from typing import Any

from nmtkit.sources.datasets_library import (
    column_types,
    import_datasets,
    library_errors,
    read_tables,
    read_texts,
)
from nmtkit.sources.source import DETECTED, ColumnSource, Row, expand_path
from nmtkit.sources.text import TextFile
from nmtkit.sources.variants import Variants
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import join_names


class Dataset(ColumnSource):
    """A data set on disk: a Parquet file, or a folder of Parquet files or of `save_to_disk`.

    The splits of a folder of Parquet are those that `datasets.load_dataset` finds: by the names of
    its files, or as its card (README.md) declares them.
    """

    key = "dataset"
    path_keys = ("dataset",)
    title = "a data set"
    form = "Parquet"
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
            if path.is_file() and not _is_hidden(path.relative_to(place)):
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
        """Return the rows of the split, which the library reads."""
        datasets = import_datasets()
        place = expand_path(self.dataset)
        # In the catalog, `dataset` is the name of a download, which is a file.
        is_folder = all(place in text.path.parents for text in texts)
        with library_errors(self.dataset):
            if not is_folder:
                self._check_split(["train"])
                rows = _read_parquet(datasets, [str(texts[0].path)])
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
