"""Rows of floats on a CPU that are combined in vector registers, in the order in which they lie in memory.

Loops over arrays, of which the compiler makes vectors, store what each step of a tree leaves: rows of 64 float32 took
four to seven times as long, and a sum of 90 MB 1.5 times. A tree in registers meets them in another order, which cost
1.4 times where no cache holds them. So each lane adds TURNS values, and their sums in two steps more.
"""

import tilelang.language as T  # noqa: N812

from tileops_kernels.macros.combining import combine_in_c, identity, magnitude
from tileops_kernels.macros.cpu_blocks import load_block, offset_of, start_of

WIDTH = 16
"""Values of a vector: a register of AVX-512, two of AVX2."""

REGISTER = f"float32x{WIDTH}"

VECTORS = 4
"""Vectors that a turn combines each with its own, enough to hide the latency of an addition."""

TURN = VECTORS * WIDTH
"""Elements of a turn."""

TURNS = 16
"""Turns that are combined before they join what came earlier."""

RUNS = 32
"""So many of these as are combined before they join the whole."""

HALVES = (range(2), range(1))
"""The vectors that each step of combining VECTORS leaves."""


def unrolled(count):
    """A loop that is written out, so that what its index selects can stand in registers."""
    return T.unroll(count, explicit=True)


def fits_registers(operation, of, source, through):
    """Whether rows can be combined so: floats that are rounded to nothing narrower, by what registers can do."""
    if "float" not in source or through not in ("float32", source):
        return False
    return (of == "value" and operation in ("sum", "prod", "amax", "amin")) or (operation, of) == ("sum", "square")


def row_in_registers(operation, of, source, reduced):
    """The macro that sets `total[0]` to the combined row X[row, 0, 0:reduced], whose elements contribute by `of`.

    Its locals are three of VECTORS registers, and `rest`, float32, of WIDTH elements or more.
    """
    run_elements = TURNS * TURN
    chunk = RUNS * run_elements

    def combined(first, second):
        return T.call_extern(REGISTER, f"tileops_{operation}", first, second)

    def vector_at(X, row, column):
        offset = offset_of(X, (row, 0), column)
        return magnitude(of, T.call_extern(REGISTER, f"tileops_vector_{source}", start_of(X), offset))

    @T.macro
    def clear(totals):
        for v in unrolled(VECTORS):
            totals[v] = T.Broadcast(identity(operation, "float32"), WIDTH)

    @T.macro
    def join(totals, others):
        for v in unrolled(VECTORS):
            totals[v] = combined(totals[v], others[v])

    @T.macro
    def combine_run(X, row, start, turns, run, totals):
        clear(run)
        for k in T.serial(turns):
            for v in unrolled(VECTORS):
                run[v] = combined(run[v], vector_at(X, row, start + k * TURN + v * WIDTH))
        join(totals, run)

    @T.macro
    def combine_runs(X, row, start, runs, run, partial, totals):
        clear(partial)
        for b in T.serial(runs):
            combine_run(X, row, start + b * run_elements, TURNS, run, partial)
        join(totals, partial)

    @T.macro
    def combine_row(X, row, run, partial, totals, total, rest):
        clear(totals)
        for c in T.serial(reduced // chunk):
            combine_runs(X, row, c * chunk, RUNS, run, partial, totals)
        combine_runs(X, row, reduced // chunk * chunk, reduced // run_elements % RUNS, run, partial, totals)
        combine_run(X, row, reduced // run_elements * run_elements, reduced // TURN % TURNS, run, totals)
        for k in T.serial(reduced // WIDTH % VECTORS):
            totals[0] = combined(totals[0], vector_at(X, row, reduced // TURN * TURN + k * WIDTH))
        for half in HALVES:
            for v in half:
                totals[v] = combined(totals[v], totals[v + len(half)])
        total[0] = T.call_extern("float32", f"tileops_{operation}_within", totals[0])
        load_block(X, (row, 0), reduced // WIDTH * WIDTH, rest, reduced % WIDTH, source)
        for k in T.serial(reduced % WIDTH):
            total[0] = combine_in_c(operation, total[0], magnitude(of, rest[k]))

    return combine_row
