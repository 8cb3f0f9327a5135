"""The signatures of programs over rows that a weight and a bias may scale and shift."""

import tilelang.language as T  # noqa: N812


def program_of_rows(body, rows, parameter, dtype, weighted, biased):
    """The program that runs the macro `body(X, W, B, Y, eps)`, with the tensors that are passed as its parameters.

    X and Y have shape `rows`, W and B shape `parameter`; the macro is given None for what is absent.
    """
    if weighted and biased:

        @T.prim_func
        def affine_rows(
            X: T.Tensor[rows, dtype],
            W: T.Tensor[parameter, dtype],
            B: T.Tensor[parameter, dtype],
            Y: T.Tensor[rows, dtype],
            eps: T.float32,
        ):
            body(X, W, B, Y, eps)

        return affine_rows
    if weighted:

        @T.prim_func
        def weighted_rows(
            X: T.Tensor[rows, dtype], W: T.Tensor[parameter, dtype], Y: T.Tensor[rows, dtype], eps: T.float32
        ):
            body(X, W, None, Y, eps)

        return weighted_rows
    if biased:

        @T.prim_func
        def biased_rows(
            X: T.Tensor[rows, dtype], B: T.Tensor[parameter, dtype], Y: T.Tensor[rows, dtype], eps: T.float32
        ):
            body(X, None, B, Y, eps)

        return biased_rows

    @T.prim_func
    def plain_rows(X: T.Tensor[rows, dtype], Y: T.Tensor[rows, dtype], eps: T.float32):
        body(X, None, None, Y, eps)

    return plain_rows
