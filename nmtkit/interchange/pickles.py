"""Pickles as plain values, without unpickling: nothing that a pickle names is imported or called.

The opcodes run on a stack of numbers, strings and containers. What a pickle would make by calling
a class or a function stays a record of that call.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from pickletools import genops
from typing import Any, BinaryIO
from warnings import catch_warnings

from nmtkit.errors import shown

# Of a pickle, which takes up to 80 times as much memory. That of a model with 3 + 3 layers and its
# Adam moments has 62,000 bytes.
MAX_BYTES = 2**21

DICTIONARIES = ("collections.OrderedDict", "collections.defaultdict")


class PickleError(Exception):
    """A pickle is damaged, or is not plain data; the message continues the name of its file."""


@dataclass(frozen=True, eq=False)
class Named:
    """A class or a function that a pickle names."""

    name: str  # as module.name


@dataclass(eq=False)
class Made:
    """What a pickle would make by calling a class or a function."""

    by: str  # as module.name
    args: tuple[Any, ...]
    state: Any = None  # what it would be given afterwards


@dataclass(frozen=True, eq=False)
class Persistent:
    """A reference to something outside the pickle."""

    id: Any


@dataclass(frozen=True)
class Pickle:
    """What a pickle holds."""

    value: Any
    references: list[Persistent]  # in the order in which they appear


def read_pickle(stream: BinaryIO, may_name: Callable[[str], bool]) -> Pickle:
    """Read the pickle at the position of `stream`, and leave it there.

    Args:
        stream: A file that can seek.
        may_name: Says of a module.name whether it is known.

    Raises:
        PickleError: The pickle is too large, damaged, or names something that is not known.
    """
    start = stream.tell()
    content = BytesIO(stream.read(MAX_BYTES))
    machine = _Machine(may_name)
    try:
        with catch_warnings(action="ignore"):  # of escapes in a damaged text
            for opcode, arg, _ in genops(content):
                machine.run(opcode.name, arg)
        value = machine.stack.pop()
    except (ValueError, IndexError, KeyError) as error:
        if len(content.getbuffer()) == MAX_BYTES:
            raise PickleError(f"has a pickle of more than {MAX_BYTES:,} bytes") from None
        raise PickleError(f"holds a damaged pickle ({type(error).__name__}: {error})") from None
    stream.seek(start + content.tell())
    return Pickle(value, machine.references)


@dataclass
class _Machine:
    """The stack machine of the protocols 2 to 4, as far as plain data needs it."""

    may_name: Callable[[str], bool]
    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)
    references: list[Persistent] = field(default_factory=list)

    def run(self, opcode: str, arg: Any) -> None:
        """Run one opcode, with the argument that is written behind it."""
        if opcode in _LITERALS:
            self.stack.append(arg)
        elif opcode in _NEW:
            self.stack.append(_NEW[opcode]())
        elif opcode in _OPERATIONS:
            _OPERATIONS[opcode](self, arg)
        else:
            raise PickleError(f"holds a pickle with the opcode {opcode}, which is not read")

    def mark(self, _: None) -> None:
        self.marks.append(len(self.stack))

    def put(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def memoize(self, _: None) -> None:
        self.put(len(self.memo))

    def get(self, place: int) -> None:
        self.stack.append(self.memo[place])

    def make_tuple(self, n: int | None) -> None:
        self.stack.append(tuple(self._pop(n)))

    def extend(self, n: int | None) -> None:
        items = self._pop(n)
        _expected(self.stack[-1], list).extend(items)

    def fill(self, n: int | None) -> None:
        items = self._pop(n)
        _fill(_expected(self.stack[-1], dict), items)

    def name(self, arg: str | None) -> None:
        module, name = self._pop(2) if arg is None else arg.split(" ", 1)
        full = f"{_expected(module, str)}.{_expected(name, str)}"
        if not self.may_name(full):
            raise PickleError(
                f"names {shown(full)}, which a checkpoint does not need, so nothing of it is read"
            )
        self.stack.append(Named(full))

    def make(self, _: None) -> None:
        called, args = self._pop(2)
        self.stack.append(_made(_expected(called, Named).name, _expected(args, tuple)))

    def set_state(self, _: None) -> None:
        (state,) = self._pop(1)
        if type(self.stack[-1]) is Made:  # the attributes of a dictionary are left out
            self.stack[-1].state = state

    def refer(self, _: None) -> None:
        self.references.append(Persistent(*self._pop(1)))
        self.stack.append(self.references[-1])

    def _pop(self, n: int | None) -> list[Any]:
        """Take the last `n` values, or all above the mark."""
        start = self.marks.pop() if n is None else len(self.stack) - n
        if start < 0:
            raise IndexError("the stack is empty")
        items = self.stack[start:]
        del self.stack[start:]
        return items


_LITERALS = frozenset(
    (
        *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
        *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING", "SHORT_BINSTRING"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    )
)
_NEW: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
}
_OPERATIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda _machine, _arg: None,
    "FRAME": lambda _machine, _arg: None,
    "STOP": lambda _machine, _arg: None,
    "MARK": _Machine.mark,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.memoize,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "TUPLE1": lambda machine, _: machine.make_tuple(1),
    "TUPLE2": lambda machine, _: machine.make_tuple(2),
    "TUPLE3": lambda machine, _: machine.make_tuple(3),
    "TUPLE": _Machine.make_tuple,
    "APPEND": lambda machine, _: machine.extend(1),
    "APPENDS": _Machine.extend,
    "SETITEM": lambda machine, _: machine.fill(2),
    "SETITEMS": _Machine.fill,
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.name,
    "REDUCE": _Machine.make,
    "NEWOBJ": _Machine.make,
    "BUILD": _Machine.set_state,
    "BINPERSID": _Machine.refer,
}


def _expected(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{type(value).__name__} in place of {kind.__name__}")
    return value


def _fill(made: dict[Any, Any], items: list[Any]) -> None:
    """Add keys and values, which alternate.

    Keys are numbers or strings: the hash of a deeply nested tuple would overflow the C stack.
    """
    for key, value in zip(items[::2], items[1::2], strict=True):
        if type(key) not in (str, int, bool, float):
            raise ValueError(f"a key of type {type(key).__name__}")
        made[key] = value


def _made(name: str, args: tuple[Any, ...]) -> Any:
    if name not in DICTIONARIES:
        return Made(name, args)
    made: dict[Any, Any] = {}
    if name == "collections.OrderedDict" and args:  # of Python 2: a list of pairs
        for pair in _expected(args[0], list):
            _fill(made, list(pair) if type(pair) in (list, tuple) else [pair])
    return made
