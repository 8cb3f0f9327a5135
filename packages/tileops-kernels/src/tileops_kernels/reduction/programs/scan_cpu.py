"""Scans on a CPU: every element becomes the sum or product of those up to it, along rows or along columns.

Elements, or what `of` says that they contribute, are rounded to `through` and combined as its accumulator, float32 or
int64; each result is rounded once to `target`. Every size is dynamic; callers pass the sizes in alphabetical order.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.combining import accumulator, combine, identity
from tileops_kernels.macros.cpu_blocks import BLOCK, COLUMNS, SHORT, load_elements, storage_dtype, store_elements

CHAINS = 8
"""Parts of a block that are scanned side by side, since each addition waits for the one before it."""

CHUNK = 64
"""Blocks of a row whose sum joins what came before them at once, so that the error of a long sum stays small.

Products are carried from block to block: one of many elements may overflow where those up to each of them do not.
"""

ROWS = 1024
"""The same for the rows of columns."""

WORTHWHILE = 32
"""Elements of a block that are worth cutting into chains."""

SPAN = 8
"""Neighbours of which each element of a block of short integers becomes the sum, before such sums are added up."""


@T.macro
def add_behind(source, target, step):
    """Make `target` a block of `source`, with the element that stands `step` before each added to it."""
    for i in T.serial(step):
        target[i] = source[i]
    for i in T.serial(BLOCK - step):
        target[i + step] = source[i + step] + source[i]


def scan_rows(operation, source, through, target, of, carried):
    """Rows; parameters X, S where carried, Y, parts and start where carried; sizes outer, reduced.

    X and Y are (outer, 1, reduced). Carried rows are `parts` parts of longer ones, one behind the other, and S (outer,)
    holds the scanned totals of all parts; the first row is part `start` of them.
    """
    outer, reduced = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64")
    wide = accumulator(through)
    short = operation == "sum" and wide == "int64" and (of == "nonzero" or source in SHORT)
    own = "int32" if short else wide

    @T.macro
    def scan_short_block(X, Y, row, column, x, last, spans, floats, bits, base, carry, width):
        load_elements(X, (row, 0), column, x, floats, bits, width, source, through, of)
        for i in T.serial(BLOCK - width):
            x[width + i] = 0
        add_behind(x, last, 1)
        add_behind(last, x, 2)
        add_behind(x, last, 4)
        base[1] = base[0] + carry[0]
        for lane in T.serial(SPAN):
            spans[lane] = 0
        for k in T.serial(width // SPAN):
            for lane in T.serial(SPAN):
                spans[lane] += last[k * SPAN + lane]
                Y[row, 0, column + k * SPAN + lane] = base[1] + T.cast(spans[lane], "int64")
        for lane in T.serial(width % SPAN):
            total = spans[lane] + last[width // SPAN * SPAN + lane]
            Y[row, 0, column + width // SPAN * SPAN + lane] = base[1] + T.cast(total, "int64")
        carry[0] += T.cast(spans[SPAN - 1], "int64")

    @T.macro
    def scan_chains(x, before, base, carry, length):
        for i in T.serial(length - 1):
            for chain in T.unroll(CHAINS, explicit=True):
                x[chain * length + i + 1] = combine(operation, x[chain * length + i], x[chain * length + i + 1])
        before[0] = identity(operation, wide)
        for chain in T.unroll(CHAINS - 1, explicit=True):
            before[chain + 1] = combine(operation, before[chain], x[chain * length + length - 1])
        base[1] = combine(operation, base[0], carry[0])
        carry[0] = combine(operation, carry[0], combine(operation, before[CHAINS - 1], x[CHAINS * length - 1]))
        for chain in T.serial(CHAINS):
            before[chain] = combine(operation, base[1], before[chain])
            for i in T.serial(length):
                x[chain * length + i] = combine(operation, before[chain], x[chain * length + i])

    @T.macro
    def scan_elements(x, base, carry, first, count):
        for i in T.serial(count):
            carry[0] = combine(operation, carry[0], x[first + i])
            x[first + i] = combine(operation, base[0], carry[0])

    @T.macro
    def scan_block(X, Y, row, column, x, floats, bits, before, base, carry, width):
        load_elements(X, (row, 0), column, x, floats, bits, width, source, through, of)
        if width >= WORTHWHILE:
            scan_chains(x, before, base, carry, width // CHAINS)
            scan_elements(x, base, carry, width // CHAINS * CHAINS, width % CHAINS)
        else:
            scan_elements(x, base, carry, 0, width)
        store_elements(x, Y, (row, 0), column, width, target)

    @T.macro
    def bring_in(base, carry):
        base[0] = combine(operation, base[0], carry[0])
        carry[0] = identity(operation, wide)

    @T.macro
    def body(X, S, Y, parts, start):
        with T.Kernel(outer) as row:
            x = T.alloc_local((BLOCK,), own)
            last = T.alloc_local((BLOCK,), own)
            spans = T.alloc_local((SPAN,), own)
            floats = T.alloc_local((BLOCK,), "float32")
            bits = T.alloc_local((1, BLOCK), "int16")
            before = T.alloc_local((CHAINS,), wide)
            base = T.alloc_local((2,), wide)
            carry = T.alloc_local((1,), wide)
            base[0] = identity(operation, wide)
            carry[0] = identity(operation, wide)
            if carried and T.truncmod(start + row, parts) > 0:
                base[0] = S[start + row - 1]
            for b in T.serial(reduced // BLOCK):
                if short:
                    scan_short_block(X, Y, row, b * BLOCK, x, last, spans, floats, bits, base, carry, BLOCK)
                else:
                    scan_block(X, Y, row, b * BLOCK, x, floats, bits, before, base, carry, BLOCK)
                if operation == "sum" and b % CHUNK == CHUNK - 1:
                    bring_in(base, carry)
            start, rest = reduced // BLOCK * BLOCK, reduced % BLOCK
            if short:
                if rest > 0:
                    scan_short_block(X, Y, row, start, x, last, spans, floats, bits, base, carry, rest)
            else:
                scan_block(X, Y, row, start, x, floats, bits, before, base, carry, rest)

    shape, advance = (outer, 1, reduced), {"X": "reduced", "Y": "reduced"}
    if carried:
        total = T.dynamic("total", "int64")

        @T.prim_func
        def part(
            X: T.Tensor[shape, storage_dtype(source)],
            S: T.Tensor[(total,), wide],
            Y: T.Tensor[shape, storage_dtype(target)],
            parts: T.int64,
            start: T.int64,
        ):
            body(X, S, Y, parts, start)

        return part, RowSplit("outer", advance, work="reduced", start="start")

    @T.prim_func
    def whole(X: T.Tensor[shape, storage_dtype(source)], Y: T.Tensor[shape, storage_dtype(target)]):
        body(X, None, Y, None, None)

    return whole, RowSplit("outer", advance, work="reduced")


def scan_columns(operation, source, through, target, of, shared):
    """Columns; parameters X and Y (outer, reduced, inner), and columns; sizes inner, outer, reduced.

    Threads share what `shared` names, outer slices or columns; `columns` is the number of columns in all.
    """
    outer, reduced, inner = T.dynamic("outer", "int64"), T.dynamic("reduced", "int64"), T.dynamic("inner", "int64")
    wide = accumulator(through)

    @T.macro
    def scan_block(X, Y, place, column, x, floats, bits, base, carry, width):
        for k in T.serial(width):
            base[k] = identity(operation, wide)
            carry[k] = identity(operation, wide)
        for i in T.serial(reduced):
            load_elements(X, (place, i), column, x, floats, bits, width, source, through, of)
            for k in T.serial(width):
                carry[k] = combine(operation, carry[k], x[k])
                x[k] = combine(operation, base[k], carry[k])
            store_elements(x, Y, (place, i), column, width, target)
            if operation == "sum" and i % ROWS == ROWS - 1:
                for k in T.serial(width):
                    base[k] = combine(operation, base[k], carry[k])
                    carry[k] = identity(operation, wide)

    @T.prim_func
    def program(
        X: T.Tensor[(outer, reduced, inner), storage_dtype(source)],
        Y: T.Tensor[(outer, reduced, inner), storage_dtype(target)],
        columns: T.int64,
    ):
        with T.Kernel(outer) as place:
            x = T.alloc_local((COLUMNS,), wide)
            floats = T.alloc_local((COLUMNS,), "float32")
            bits = T.alloc_local((1, COLUMNS), "int16")
            base = T.alloc_local((COLUMNS,), wide)
            carry = T.alloc_local((COLUMNS,), wide)
            for b in T.serial(columns // COLUMNS):
                scan_block(X, Y, place, b * COLUMNS, x, floats, bits, base, carry, COLUMNS)
            scan_block(X, Y, place, columns // COLUMNS * COLUMNS, x, floats, bits, base, carry, columns % COLUMNS)

    if shared == "columns":
        return program, RowSplit("columns", {"X": 1, "Y": 1}, work="outer * reduced")
    return program, RowSplit("outer", {"X": "reduced * inner", "Y": "reduced * inner"}, work="reduced * inner")
