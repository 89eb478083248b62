"""Data sets of the Hugging Face Hub, read by the library `datasets`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from nmtkit.sources.datasets_library import import_datasets, library_errors, read_texts
from nmtkit.sources.source import ColumnSource, Row
from nmtkit.sources.text import TextFile
from nmtkit.sources.variants import Variants
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import join_names

REPOSITORY = r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$"


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

    with library_errors(f"the data set {repository} of the Hub"):
        return str(HfApi().dataset_info(repository).sha)


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
