"""Vector instructions for the compiled kernels, written down one by one: importing this module needs numba.

Left to itself, the compiler neither keeps a block of sums in registers nor vectorises ``math.exp``. The instructions
are LLVM's own, for any processor. Nothing is reordered, and only ``Lanes.times`` may be fused.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

# Bytes of a vector (AVX2's registers; other processors split or pair them) and of a line of the cache.
WIDTH = 32
LINE = 64
# numba's cache notices changes of the file that holds a function alone. Kernels have this number as a default
# argument, which is part of what the cache goes by.
_FILES = (
    "_lanes",
    "_slopes",
    "_tiles",
    "_rows",
    "_columns",
    "_prepare",
    "../../problem/levels",
    "../../problem/grid",
)
VERSION = zlib.crc32(b"".join((Path(__file__).parent / f"{name}.py").read_bytes() for name in _FILES))

Value = Any  # llvmlite's builders do not declare what they return
INDEX, SHORT = ir.IntType(64), ir.IntType(32)


@dataclass(frozen=True)
class Kind:
    """What the lanes of a vector hold."""

    element: ir.Type
    lanes: int
    name: str

    @property
    def vector(self) -> ir.VectorType:
        """The type of the vector."""
        return ir.VectorType(self.element, self.lanes)

    @property
    def size(self) -> int:
        """Bytes of a lane."""
        return int(self.name[1:]) // 8

    @property
    def bits(self) -> ir.VectorType:
        """The type of integers as wide as the lanes."""
        return ir.VectorType(ir.IntType(8 * self.size), self.lanes)

    @property
    def twice(self) -> "Kind":
        """The same with twice as many lanes: the compiler takes turns with two vectors, which hides their latency."""
        return Kind(self.element, 2 * self.lanes, self.name)

    def all(self, number: float) -> Value:
        """Return the number in all lanes."""
        return ir.Constant(self.vector, [number] * self.lanes)


F64, F32, I64 = Kind(ir.DoubleType(), 4, "f64"), Kind(ir.FloatType(), 8, "f32"), Kind(INDEX, 4, "i64")
KINDS = {types.float64: F64, types.float32: F32, types.int64: I64}


class Lanes:
    """A vector in a kernel that is being written; each operator appends one instruction."""

    def __init__(self, builder: ir.IRBuilder, kind: Kind, value: Value) -> None:
        self.builder, self.kind, self.value = builder, kind, value

    def _of(self, other: "Lanes | float") -> Value:
        return other.value if isinstance(other, Lanes) else self.kind.all(float(other))

    def new(self, value: Value, kind: Kind | None = None) -> "Lanes":
        """Return another vector, of the same kind unless one is given."""
        return Lanes(self.builder, kind or self.kind, value)

    def __add__(self, other: "Lanes | float") -> "Lanes":
        return self.new(self.builder.fadd(self.value, self._of(other)))

    def __sub__(self, other: "Lanes | float") -> "Lanes":
        return self.new(self.builder.fsub(self.value, self._of(other)))

    def __rsub__(self, other: float) -> "Lanes":
        return self.new(self.builder.fsub(self._of(other), self.value))

    def __mul__(self, other: "Lanes | float") -> "Lanes":
        return self.new(self.builder.fmul(self.value, self._of(other)))

    def __truediv__(self, other: "Lanes | float") -> "Lanes":
        return self.new(self.builder.fdiv(self.value, self._of(other)))

    def times(self, factor: "Lanes | float", plus: "Lanes | float") -> "Lanes":
        """Return self * factor + plus, in one instruction where the processor has it."""
        return self._call("fmuladd", self._of(factor), self._of(plus))

    def floor(self) -> "Lanes":
        """Return the integers below."""
        return self._call("floor")

    def nearest(self) -> "Lanes":
        """Return the nearest integers, the even one of two."""
        return self._call("rint")

    def _call(self, name: str, *more: Value) -> "Lanes":
        kind = ir.FunctionType(self.kind.vector, [self.kind.vector] * (1 + len(more)))
        name = f"llvm.{name}.v{self.kind.lanes}{self.kind.name}"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.new(self.builder.call(function, [self.value, *more]))

    def select(self, comparison: str, bound: "Lanes | float", yes: "Lanes | float", no: "Lanes | float") -> "Lanes":
        """Return ``yes`` in the lanes that compare so with the bound (NaN never does), else ``no``."""
        found = self.builder.fcmp_ordered(comparison, self.value, self._of(bound))
        return self.new(self.builder.select(found, self._of(yes), self._of(no)))

    def at_least(self, bound: float) -> "Lanes":
        """Return the larger of self and the bound; NaN stays."""
        return self.select("<", bound, bound, self)

    def at_most(self, bound: float) -> "Lanes":
        """Return the smaller of self and the bound; NaN stays."""
        return self.select(">", bound, bound, self)

    def where_negative(self, yes: "Lanes | float", no: "Lanes | float") -> "Lanes":
        """Return ``yes`` in the lanes whose sign bit is set, else ``no``."""
        negative = self.builder.icmp_signed("<", self.bits(), ir.Constant(self.kind.bits, [0] * self.kind.lanes))
        return self.new(self.builder.select(negative, self._of(yes), self._of(no)))

    def with_sign_of(self, other: "Lanes") -> "Lanes":
        """Return self, its sign changed where other's sign bit is set."""
        return self.from_bits(self.builder.xor(self.bits(), self.builder.and_(other.bits(), self._sign())))

    def negative_size(self) -> "Lanes":
        """Return -|self|."""
        return self.from_bits(self.builder.or_(self.bits(), self._sign()))

    def size(self) -> "Lanes":
        """Return |self|."""
        return self.from_bits(self.builder.and_(self.bits(), self.builder.not_(self._sign())))

    def _sign(self) -> Value:
        return ir.Constant(self.kind.bits, [-(2 ** (8 * self.kind.size - 1))] * self.kind.lanes)

    def bits(self) -> Value:
        """Return the lanes' bits as integers."""
        return self.builder.bitcast(self.value, self.kind.bits)

    def from_bits(self, bits: Value) -> "Lanes":
        """Return the floats with these bits."""
        return self.new(self.builder.bitcast(bits, self.kind.vector))

    def mix(self, other: "Lanes", lanes: list[int]) -> "Lanes":
        """Return these lanes of self and, counted on, of other: as many as wanted."""
        mask = ir.Constant(ir.VectorType(SHORT, len(lanes)), lanes)
        kind = Kind(self.kind.element, len(lanes), self.kind.name)
        return self.new(self.builder.shuffle_vector(self.value, other.value, mask), kind)

    def to(self, kind: Kind) -> "Lanes":
        """Return the numbers as float64 (of float32) or float32 (of float64); or self, if it is that already."""
        if kind.name == self.kind.name:
            return self
        convert = self.builder.fpext if kind.size > self.kind.size else self.builder.fptrunc
        kind = Kind(kind.element, self.kind.lanes, kind.name)
        return self.new(convert(self.value, kind.vector), kind)


class Memory:
    """An array argument of an intrinsic, from an offset on."""

    def __init__(self, context, builder: ir.IRBuilder, kind: types.Array, array: Value, offset: Value) -> None:
        data = context.make_array(kind)(context, builder, array).data
        self.builder, self.kind, self.pointer = builder, KINDS[kind.dtype], builder.gep(data, [offset])

    def at(self, index: Value | int, kind: ir.Type) -> Value:
        """Return the address of this index."""
        index = count(index) if isinstance(index, int) else index
        return self.builder.bitcast(self.builder.gep(self.pointer, [index]), kind.as_pointer())

    def load(self, index: Value | int, kind: Kind | None = None) -> Lanes:
        """Return the vector from this index on, with as many lanes as the kind and converted to it."""
        kind = kind or self.kind
        stored = Kind(self.kind.element, kind.lanes, self.kind.name)
        value = self.builder.load(self.at(index, stored.vector), align=stored.size)
        return Lanes(self.builder, stored, value).to(kind)

    def load_some(self, index: Value | int, mask: Value, kind: Kind) -> Lanes:
        """Do the same with zeros where the mask is 0: nothing is read there."""
        stored = Kind(self.kind.element, kind.lanes, self.kind.name)
        flags = ir.VectorType(ir.IntType(1), kind.lanes)
        typed = ir.FunctionType(stored.vector, [stored.vector.as_pointer(), SHORT, flags, stored.vector])
        name = f"llvm.masked.load.v{kind.lanes}{stored.name}.p0"
        function = cgutils.get_or_insert_function(self.builder.module, typed, name)
        arguments = [self.at(index, stored.vector), ir.Constant(SHORT, stored.size), mask, stored.all(0.0)]
        return Lanes(self.builder, stored, self.builder.call(function, arguments)).to(kind)

    def spread(self, index: Value | int) -> Lanes:
        """Return the number at this index in all lanes."""
        number = self.builder.load(self.at(index, self.kind.element))
        return spread(self.builder, self.kind, number)

    def integer(self, index: Value | int) -> Value:
        """Return the integer at this index."""
        return self.builder.load(self.at(index, INDEX))

    def store(self, index: Value | int, value: Lanes) -> None:
        """Write the vector from this index on."""
        self.builder.store(value.value, self.at(index, value.kind.vector), align=value.kind.size)

    def store_some(self, index: Value | int, mask: Value, value: Lanes) -> None:
        """Do the same where the mask is 1: nothing is written elsewhere."""
        vector = value.kind.vector
        flags = ir.VectorType(ir.IntType(1), value.kind.lanes)
        typed = ir.FunctionType(ir.VoidType(), [vector, vector.as_pointer(), SHORT, flags])
        name = f"llvm.masked.store.v{value.kind.lanes}{value.kind.name}.p0"
        function = cgutils.get_or_insert_function(self.builder.module, typed, name)
        align = ir.Constant(SHORT, value.kind.size)
        self.builder.call(function, [value.value, self.at(index, vector), align, mask])

    def prefetch(self, index: Value | int) -> None:
        """Ask for the line of this index in the second-level cache, ahead of its use; it need not exist."""
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, SHORT, SHORT, SHORT])
        function = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        self.builder.call(function, [self.at(index, ir.IntType(8)), *(ir.Constant(SHORT, v) for v in (0, 2, 1))])


class Register:
    """A vector that a loop updates."""

    def __init__(self, builder: ir.IRBuilder, kind: Kind, start: Lanes | float) -> None:
        self.builder, self.kind = builder, kind
        self.place = cgutils.alloca_once(builder, kind.vector)
        self.set(start)

    def get(self) -> Lanes:
        """Return the present value."""
        return Lanes(self.builder, self.kind, self.builder.load(self.place))

    def set(self, value: Lanes | float) -> None:
        """Replace the value."""
        self.builder.store(value.value if isinstance(value, Lanes) else self.kind.all(float(value)), self.place)


def count(n: int) -> ir.Constant:
    """Return an index that is known now."""
    return ir.Constant(INDEX, n)


def spread(b: ir.IRBuilder, kind: Kind, number: Value) -> Lanes:
    """Return a number in all lanes."""
    one = Lanes(b, kind, b.insert_element(ir.Constant(kind.vector, ir.Undefined), number, ir.Constant(SHORT, 0)))
    return one.mix(one, [0] * kind.lanes)


def fence(b: ir.IRBuilder) -> None:
    """Keep loads from moving across this point: unrolled loops would load so far ahead that registers run out."""
    b.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], side_effect=True)


def statement(write: Callable, *kinds):
    """Return what numba wants of an intrinsic without a result: its signature, and a function that emits its body.

    ``write`` gets each array with the integer after it as ``Memory``, the other arguments as they are.
    """

    def emit(context, builder, signature, values):
        found, rest = [], list(zip(signature.args, values, strict=True))
        while rest:
            kind, value = rest.pop(0)
            if isinstance(kind, types.Array):
                value = Memory(context, builder, kind, value, rest.pop(0)[1])
            found.append(value)
        write(builder, *found)
        return context.get_dummy_value()

    known = (types.Array, types.Float)
    return types.void(*(kind if isinstance(kind, known) else types.int64 for kind in kinds)), emit


def building_block(function: Callable) -> Any:
    """Make an intrinsic: numba calls ``function`` with types, kernels call the result with values."""
    return intrinsic(function)


def inner(function: Callable) -> Any:
    """Compile a function that kernels call."""
    return numba.njit(function, nogil=True, error_model="numpy", boundscheck=False)


def kernel(function: Callable) -> Any:
    """Compile on first use, and keep the result on disk where numba finds a place for it."""
    options = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    try:
        return numba.njit(function, cache=True, **options)
    except RuntimeError:  # no writable place
        return numba.njit(function, **options)
