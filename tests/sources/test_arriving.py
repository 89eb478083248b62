"""Lines of a pipe: none is kept waiting, lost or split."""

import os
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.cli.text import in_growing_parts
from nmtkit.errors import UserError
from nmtkit.sources.text import arriving_lines


def test_lines_come_as_soon_as_they_have_arrived() -> None:
    reader, writer = os.pipe()
    lines = arriving_lines(reader)
    os.write(writer, b"\xef\xbb\xbffirst\nsecond\r\n\nhal")
    assert next(lines) == ["first", "second", ""]
    os.write(writer, b"f\n")
    assert next(lines) == ["half"]
    os.write(writer, "\u2028 last".encode())
    os.close(writer)
    assert list(lines) == [["\u2028 last"]]
    os.close(reader)


def test_lines_before_a_bad_one_are_not_lost() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"a\nb\nc \xe9\nd\n")
    os.close(writer)
    lines = arriving_lines(reader)
    assert next(lines) == ["a", "b"]
    with pytest.raises(UserError, match="standard input, line 3: byte 3 is not valid UTF-8"):
        next(lines)
    os.close(reader)


@given(st.integers(0, 200), st.integers(1, 40))
def test_parts_after_a_stop_are_those_of_a_run_without_one(n: int, most: int) -> None:
    whole = list(in_growing_parts([range(n)], most))
    for k, n_done in enumerate(accumulate(map(len, whole), initial=0)):
        assert list(in_growing_parts([range(n_done, n)], most, n_done)) == whole[k:]
