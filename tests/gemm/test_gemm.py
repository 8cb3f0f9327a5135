"""GemmFwdOp computes what torch.matmul does for every orientation, extent and layout, and refuses what it must."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tileops.errors import DTypeError, ParameterTypeError, ShapeError
from tileops.gemm import GemmFwdOp
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, poisoned_allocations
from tileops_testing.numerics import assert_close
from tileops_testing.references.gemm import gemm_fwd

pytestmark = pytest.mark.op("GemmFwdOp")

DTYPES = (torch.float16, torch.bfloat16)


def operands(
    m: int, n: int, k: int, trans_a: bool, trans_b: bool, dtype: torch.dtype, device: torch.device, layout: Layout
) -> tuple[Tensor, Tensor]:
    a = TensorInput(shape=(k, m) if trans_a else (m, k), dtype=dtype, layout=layout).make(0, device)
    b = TensorInput(shape=(n, k) if trans_b else (k, n), dtype=dtype, layout=layout).make(1, device)
    return a, b


def check(a: Tensor, b: Tensor, trans_a: bool, trans_b: bool) -> None:
    with poisoned_allocations():
        d = GemmFwdOp(trans_a, trans_b)(a, b)
    exact = gemm_fwd(a, b, trans_a=trans_a, trans_b=trans_b)
    terms = gemm_fwd(a.abs(), b.abs(), trans_a=trans_a, trans_b=trans_b)
    assert_close(d, exact, dtype=a.dtype, summed=max(1, a.shape[0 if trans_a else 1]), terms=terms)
    assert d.is_contiguous()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_agrees_with_the_reference(
    dtype: torch.dtype, trans_a: bool, trans_b: bool, layout: Layout, tileops_device: torch.device
) -> None:
    """Either operand may be stored transposed and lie in any layout."""
    check(*operands(65, 72, 136, trans_a, trans_b, dtype, tileops_device, layout), trans_a, trans_b)


@pytest.mark.parametrize("m", [0, 1, 5, 49])
@pytest.mark.parametrize("n", [0, 1, 17, 64])
@pytest.mark.parametrize("k", [0, 1, 7, 257])
def test_any_extents(m: int, n: int, k: int, tileops_device: torch.device) -> None:
    """Any extent may be odd, one or zero; without terms the product is zeros."""
    check(*operands(m, n, k, False, True, torch.bfloat16, tileops_device, "contiguous"), False, True)


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(0, 5, 8), (5, 0, 8), (5, 3, 0), (1, 1, 1), (1, 40, 24)])
def test_few_elements_in_any_orientation(
    m: int, n: int, k: int, trans_a: bool, trans_b: bool, tileops_device: torch.device
) -> None:
    """Empty operands, products without terms, single elements and single rows may be stored transposed."""
    check(*operands(m, n, k, trans_a, trans_b, torch.float16, tileops_device, "contiguous"), trans_a, trans_b)


def test_views_of_one_tensor(tileops_device: torch.device) -> None:
    """Operands may be a repeated row, every other column, and overlapping windows of one tensor."""
    flat = TensorInput(shape=(4000,), dtype=torch.bfloat16).make(0, tileops_device)
    windows = flat.as_strided((9, 40), (7, 1))
    check(flat[:40].expand(6, 40), flat[:960].view(12, 80)[:, ::2], False, True)
    check(windows, flat[:400].view(40, 10).t(), False, True)
    check(windows, windows, True, False)


def test_nan_stays_in_its_row_and_column(tileops_device: torch.device) -> None:
    """A NaN in a spoils its row alone, and one in b its column alone."""
    a, b = operands(50, 70, 300, False, True, torch.float16, tileops_device, "contiguous")
    a[3, 299], b[69, 0] = math.nan, math.nan
    d = GemmFwdOp()(a, b)
    expected = torch.zeros(50, 70, dtype=torch.bool, device=tileops_device)
    expected[3], expected[:, 69] = True, True
    assert torch.equal(d.isnan(), expected)


def test_infinity_times_zero(tileops_device: torch.device) -> None:
    """An infinite element times zero is NaN, as in torch; times another number infinity."""
    a = torch.ones(2, 8, dtype=torch.float16, device=tileops_device)
    a[0, 0] = math.inf
    b = torch.ones(3, 8, dtype=torch.float16, device=tileops_device)
    b[1, 0] = 0
    d = GemmFwdOp()(a, b)
    assert d[0].isnan().tolist() == [False, True, False]
    assert d[0, 0].item() == math.inf
    assert d[1].tolist() == [8, 7, 8]


def test_opposite_infinities_and_overflow(tileops_device: torch.device) -> None:
    """Infinities of both signs give NaN, and a sum beyond the dtype's largest value is infinite, as in torch."""
    a = torch.tensor([[math.inf, -math.inf], [300.0, 300.0]], dtype=torch.float16, device=tileops_device)
    d = GemmFwdOp()(a, a[1:])
    assert d[0].isnan().all()
    assert d[1].item() == math.inf
    assert GemmFwdOp()(a[1:].bfloat16(), a[1:].bfloat16()).item() == 180224  # 180000 to the nearest bfloat16


def test_subnormal_numbers_are_kept(tileops_device: torch.device) -> None:
    """The smallest numbers of a dtype are neither read nor written as zeros."""
    a = torch.full((1, 3), 2.0**-24, dtype=torch.float16, device=tileops_device)
    assert GemmFwdOp()(a, torch.ones_like(a)).item() == 3 * 2.0**-24


def test_extents_do_not_build_on_cpu() -> None:
    """On a CPU one entry serves all extents."""
    op = GemmFwdOp()
    for m, n, k in ((3, 4, 5), (70, 4, 9), (1, 33, 64)):
        op(*operands(m, n, k, False, True, torch.float16, torch.device("cpu"), "contiguous"))
    assert len(list(op.iter_kernels())) == 1


def test_refuses_other_terms() -> None:
    """Operands with different numbers of terms are refused, both numbers named."""
    with pytest.raises(ShapeError, match=r"GemmFwdOp.*b.*5.*3"):
        GemmFwdOp()(torch.ones(2, 3, dtype=torch.float16), torch.ones(4, 5, dtype=torch.float16))


def test_refuses_unlike_dtypes() -> None:
    """Operands of different dtypes are refused, both dtypes named."""
    with pytest.raises(DTypeError, match=r"GemmFwdOp.*bfloat16"):
        GemmFwdOp()(torch.ones(2, 3, dtype=torch.float16), torch.ones(4, 3, dtype=torch.bfloat16))


def test_refuses_float32() -> None:
    """A dtype beyond the signature is refused."""
    with pytest.raises(DTypeError, match=r"GemmFwdOp.*a.*float16.*bfloat16.*float32"):
        GemmFwdOp()(torch.ones(2, 3), torch.ones(4, 3))


def test_refuses_other_parameters() -> None:
    """A transposition is a bool."""
    with pytest.raises(ParameterTypeError, match=r"GemmFwdOp.*trans_a.*bool"):
        GemmFwdOp(trans_a="yes")  # type: ignore[arg-type]
