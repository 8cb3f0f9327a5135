"""Max pooling of planes on a CPU: a row of windows at a time, each of the window's places over the whole row."""

import tilelang.language as T  # noqa: N812

from tileops_kernels.build.launcher import RowSplit
from tileops_kernels.macros.cpu_blocks import storage_dtype
from tileops_kernels.macros.cpu_products import load, store


def max_pool_planes(dtype, span, kernel, stride, padding, dilation):
    """Y's planes = the maxima over windows of X's planes; X (x_rows, w), Y (y_rows, w_out), planes, h, h_out.

    X holds planes of h rows and Y planes of h_out rows, one below the other; `span` outputs of a row are made together.
    A window's arguments are pairs "height,width". NaN in a window gives NaN; a window outside its plane gives -inf.
    Sizes w, w_out.
    """
    storage = storage_dtype(dtype)
    w, w_out, x_rows, y_rows = (T.dynamic(name, "int64") for name in ("w", "w_out", "x_rows", "y_rows"))
    (k_h, k_w), (s_h, s_w) = _pair(kernel), _pair(stride)
    (p_h, p_w), (d_h, d_w) = _pair(padding), _pair(dilation)
    reach = (span - 1) * s_w + (k_w - 1) * d_w + 1

    @T.macro
    def read_row(X, values, row, left, outputs):
        """values[0 : reach] = X[row, left : left + reach], -inf beyond the row."""
        width = T.alloc_local((2,), "int64")
        width[0] = (outputs - 1) * s_w + (k_w - 1) * d_w + 1
        width[1] = T.min(width[0], w - left)
        first = T.max(-left, 0)
        for c in T.serial(T.min(first, width[0])):
            values[c] = -T.infinity("float32")
        if width[1] > first:
            load(X, row, left + first, values, first, width[1] - first, dtype)
        for c in T.serial(width[0] - T.max(width[1], 0)):
            values[T.max(width[1], 0) + c] = -T.infinity("float32")

    @T.prim_func
    def windows(
        X: T.Tensor[(x_rows, w), storage],
        Y: T.Tensor[(y_rows, w_out), storage],
        planes: T.int64,
        h: T.int64,
        h_out: T.int64,
    ):
        with T.Kernel(1):
            values = T.alloc_local((reach,), "float32")
            best = T.alloc_local((span,), "float32")
            for plane in T.serial(planes):
                for out_row in T.serial(h_out):
                    for part in T.serial((w_out + span - 1) // span):
                        outputs = T.min(w_out - part * span, span)
                        for c in T.serial(outputs):
                            best[c] = -T.infinity("float32")
                        for i in T.serial(k_h):
                            row = out_row * s_h - p_h + i * d_h
                            if row >= 0 and row < h:
                                read_row(X, values, plane * h + row, part * span * s_w - p_w, outputs)
                                for j in T.serial(k_w):
                                    for c in T.serial(outputs):
                                        if values[c * s_w + j * d_w] > best[c] or T.isnan(values[c * s_w + j * d_w]):
                                            best[c] = values[c * s_w + j * d_w]
                        store(best, 0, Y, plane * h_out + out_row, part * span, outputs, dtype)

    return windows, RowSplit("planes", {"X": "h * w", "Y": "h_out * w_out"}, work="h * w + h_out * w_out")


def _pair(text):
    """The two integers of "height,width"."""
    height, width = text.split(",")
    return int(height), int(width)
