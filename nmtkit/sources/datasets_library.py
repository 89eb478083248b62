"""The library `datasets`: its import, its errors, and columns of text in its data sets."""

from collections.abc import Iterator
from contextlib import contextmanager
from logging import CRITICAL
from typing import Any

from nmtkit.sources.sides import choose_columns
from nmtkit.sources.source import TEXT, Row, describe_columns, last_parts
from nmtkit.sources.treebank import normalize
from nmtkit.sources.variants import Variants
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import TREE

ROWS_PER_BATCH = 1_000
STRING_TYPES = ("string", "large_string", "string_view")  # of Arrow

Columns = tuple[str, str]


def import_datasets() -> Any:
    """Import `datasets`, which is slow, and silence it: its errors are raised anyway."""
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
    """Yield the rows of a data set as tables of Arrow, in which nested columns have dots."""
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
