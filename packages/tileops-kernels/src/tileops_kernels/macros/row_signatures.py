"""The signatures of programs over rows: what is read beside a row, and what is written."""

import tilelang.language as T  # noqa: N812


def program_of_rows(body, rows, parameter, dtype, scales, weighted, biased, added=False, gated=False):
    """The program that runs the macro `body(X, R, W, B, G, Y, S, eps)` with the tensors that are passed as parameters.

    X, Y, and where `added` R and S, have shape `rows`; W where `weighted`, B where `biased` and G where `gated` have
    shape `parameter` and dtype `scales`. The macro is given None for what is absent. What is added comes with a weight
    and without a gate, a gate with both others.
    """
    if added:
        return _added(body, rows, parameter, dtype, scales, biased)
    if gated:

        @T.prim_func
        def gated_rows(
            X: T.Tensor[rows, dtype],
            W: T.Tensor[parameter, scales],
            B: T.Tensor[parameter, scales],
            G: T.Tensor[parameter, scales],
            Y: T.Tensor[rows, dtype],
            eps: T.float32,
        ):
            body(X, None, W, B, G, Y, None, eps)

        return gated_rows
    return _scaled(body, rows, parameter, dtype, scales, weighted, biased)


def _scaled(body, rows, parameter, dtype, scales, weighted, biased):
    """The program of one row read and one written."""
    if weighted and biased:

        @T.prim_func
        def affine_rows(
            X: T.Tensor[rows, dtype],
            W: T.Tensor[parameter, scales],
            B: T.Tensor[parameter, scales],
            Y: T.Tensor[rows, dtype],
            eps: T.float32,
        ):
            body(X, None, W, B, None, Y, None, eps)

        return affine_rows
    if weighted:

        @T.prim_func
        def weighted_rows(
            X: T.Tensor[rows, dtype], W: T.Tensor[parameter, scales], Y: T.Tensor[rows, dtype], eps: T.float32
        ):
            body(X, None, W, None, None, Y, None, eps)

        return weighted_rows
    if biased:

        @T.prim_func
        def biased_rows(
            X: T.Tensor[rows, dtype], B: T.Tensor[parameter, scales], Y: T.Tensor[rows, dtype], eps: T.float32
        ):
            body(X, None, None, B, None, Y, None, eps)

        return biased_rows

    @T.prim_func
    def plain_rows(X: T.Tensor[rows, dtype], Y: T.Tensor[rows, dtype], eps: T.float32):
        body(X, None, None, None, None, Y, None, eps)

    return plain_rows


def _added(body, rows, parameter, dtype, scales, biased):
    """The program of two rows read, their sum written beside its norm."""
    if biased:

        @T.prim_func
        def added_affine_rows(
            X: T.Tensor[rows, dtype],
            R: T.Tensor[rows, dtype],
            W: T.Tensor[parameter, scales],
            B: T.Tensor[parameter, scales],
            Y: T.Tensor[rows, dtype],
            S: T.Tensor[rows, dtype],
            eps: T.float32,
        ):
            body(X, R, W, B, None, Y, S, eps)

        return added_affine_rows

    @T.prim_func
    def added_weighted_rows(
        X: T.Tensor[rows, dtype],
        R: T.Tensor[rows, dtype],
        W: T.Tensor[parameter, scales],
        Y: T.Tensor[rows, dtype],
        S: T.Tensor[rows, dtype],
        eps: T.float32,
    ):
        body(X, R, W, None, None, Y, S, eps)

    return added_weighted_rows
