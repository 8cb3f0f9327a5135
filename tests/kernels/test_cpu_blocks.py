"""What programs on a CPU read, write and compute block by block: conversions as torch's, and exponentials."""

from __future__ import annotations

import pytest
import torch

from tileops_kernels.build import cpu
from tileops_kernels.build.program import Program

GUARD = 24


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("count", [*range(20), 23, 24, 31, 32, 33, 40, 47, 48, 49, 63, 64])
def test_every_width_is_converted_whole(count: int, dtype: torch.dtype) -> None:
    """Bit patterns (all 65536 at the widest) widen to torch's values and come back as they were, NaN as a NaN."""
    run = cpu.load(
        Program.of("tests.kernels.programs.toys", "through_blocks", dtype=str(dtype).removeprefix("torch.")),
        owner="test",
    )
    patterns = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).short()
    for first in range(0, 1 << 16, 64 if count == 64 else 2053):
        bits = patterns[first : first + count]
        source = torch.full((GUARD + len(bits) + GUARD,), -1, dtype=torch.int16)
        source[GUARD : GUARD + len(bits)] = bits
        wide, narrow = torch.full((len(source),), torch.inf), torch.full_like(source, 12345)
        run(*(tensor[GUARD:].data_ptr() for tensor in (source, wide, narrow)), len(bits), 1)
        inside = slice(GUARD, GUARD + len(bits))
        values = bits.view(dtype)
        torch.testing.assert_close(wide[inside], values.float(), rtol=0, atol=0, equal_nan=True)
        again = narrow[inside].view(dtype)
        assert torch.equal(again.isnan(), values.isnan())
        assert torch.equal(narrow[inside][~values.isnan()], bits[~values.isnan()])
        wide[inside], narrow[inside] = torch.inf, 12345
        assert bool((wide == torch.inf).all())
        assert bool((narrow == 12345).all())


def test_exponentials_below_zero() -> None:
    """Every power of e that is no normal float32 above 1 is within 1.1 units in the last place, denormals included."""
    bits = torch.arange(0, 0x42D80000, 997, dtype=torch.int64).to(torch.int32)
    x = torch.cat([-bits.view(torch.float32), torch.tensor([-torch.inf, torch.nan, -3e38, -0.0])])
    y = torch.full_like(x, torch.nan)
    run = cpu.load(Program.of("tests.kernels.programs.toys", "exponentials"), owner="test")
    run(x.data_ptr(), y.data_ptr(), len(x), 1)
    exact = x.double().exp()
    unit = torch.maximum(exact, torch.tensor(2.0**-126)).log2().floor().exp2() * 2.0**-23
    assert float(((y.double() - exact).abs() / unit)[:-4].max()) <= 1.1
    assert float(y[:-4].min()) == 0
    assert y[-4:].nan_to_num(7).tolist() == [0, 7, 0, 1]
