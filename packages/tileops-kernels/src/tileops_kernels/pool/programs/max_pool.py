"""Max pooling of planes on CUDA: one output element a thread."""

import tilelang.language as T  # noqa: N812


def max_pool_planes(dtype, index, kernel, stride, padding, dilation, threads):
    """Y's planes = the maxima over windows of X's planes; parameters X (planes, h, w), Y (planes, h_out, w_out).

    A window's arguments are pairs "height,width". Elements are counted in `index`,
    int32 or int64. NaN in a window gives NaN; a window outside its plane gives -inf. Sizes planes, h, w, h_out, w_out.
    """
    planes, h, w, h_out, w_out = (T.dynamic(name, index) for name in ("planes", "h", "w", "h_out", "w_out"))
    (k_h, k_w), (s_h, s_w) = _pair(kernel), _pair(stride)
    (p_h, p_w), (d_h, d_w) = _pair(padding), _pair(dilation)
    written_out = k_h * k_w <= 16

    @T.macro
    def take(X, best, value, at, row, column):
        if row >= 0 and row < h and column >= 0 and column < w:
            value[0] = T.cast(X[at[0], row, column], "float32")
            if value[0] > best[0] or T.isnan(value[0]):
                best[0] = value[0]

    @T.prim_func
    def windows(X: T.Tensor[(planes, h, w), dtype], Y: T.Tensor[(planes, h_out, w_out), dtype]):
        with T.Kernel(T.ceildiv(planes * h_out * w_out, threads), threads=threads) as block:
            place = T.cast(block, index) * threads + T.get_thread_binding(0)
            best = T.alloc_local((1,), "float32")
            value = T.alloc_local((1,), "float32")
            at = T.alloc_local((5,), index)
            if place < planes * h_out * w_out:
                at[1] = T.truncdiv(place, w_out)
                at[2] = place - at[1] * w_out
                at[0] = T.truncdiv(at[1], h_out)
                at[1] = at[1] - at[0] * h_out
                at[3] = at[1] * s_h - p_h
                at[4] = at[2] * s_w - p_w
                best[0] = -T.infinity("float32")
                if written_out:
                    for i in T.unroll(k_h):
                        for j in T.unroll(k_w):
                            take(X, best, value, at, at[3] + i * d_h, at[4] + j * d_w)
                else:
                    for i in T.serial(k_h):
                        for j in T.serial(k_w):
                            take(X, best, value, at, at[3] + i * d_h, at[4] + j * d_w)
                Y[at[0], at[1], at[2]] = T.cast(best[0], dtype)

    return windows


def _pair(text):
    """The two integers of "height,width"."""
    height, width = text.split(",")
    return int(height), int(width)
