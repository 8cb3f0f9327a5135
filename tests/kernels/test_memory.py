"""Where tensors lie: copies at whole accesses, and memory that two tensors share."""

from __future__ import annotations

import torch

from tests.kernels.placing import misplaced
from tileops_kernels.memory import aligned, aligned_matrix, in_shape, share_memory


def test_aligned_copies_only_what_begins_between_accesses() -> None:
    """A tensor at a whole access is itself; another is a copy at one."""
    x = torch.randn(4, 8)
    assert aligned(x) is x
    copy = aligned(misplaced(x))
    assert copy.data_ptr() % 16 == 0
    assert torch.equal(copy, x)


def test_matrices_have_plain_strides() -> None:
    """A matrix has the strides of its extents, whatever strides torch left on axes of one."""
    row = torch.randn(1, 64)[:, :16]
    assert row.stride() == (64, 1)
    assert aligned_matrix(row, 1, 16).stride() == (16, 1)
    assert torch.equal(aligned_matrix(misplaced(torch.arange(12.0).view(2, 2, 3)), 4, 3), torch.arange(12.0).view(4, 3))


def test_a_tensor_that_lies_as_asked_is_no_view() -> None:
    """What has the shape and the strides already is passed on itself; anything else is a view of the same elements."""
    matrix = torch.arange(12.0).view(4, 3)
    assert in_shape(matrix, (4, 3), (3, 1)) is matrix
    assert aligned_matrix(matrix, 4, 3) is matrix
    vector = in_shape(matrix, (12,), (1,))
    assert (vector.shape, vector.data_ptr()) == ((12,), matrix.data_ptr())
    row = torch.randn(1, 64)[:, :16]
    assert in_shape(row, (1, 16), (16, 1)).stride() == (16, 1)


def test_shared_memory_is_that_of_elements() -> None:
    """Tensors share memory where an element of one lies in the other, whatever storage they are views of."""
    storage = torch.zeros(20)
    assert share_memory(storage[:10], storage[9:])
    assert share_memory(storage, storage[4:5])
    assert share_memory(storage[4:5], storage)
    assert not share_memory(storage[:10], storage[10:])
    assert not share_memory(storage[10:], storage[:10])
    assert not share_memory(storage, storage[5:5])
    assert not share_memory(storage, torch.zeros(20))
    assert share_memory(storage.view(4, 5)[:, 0], storage[14:])
    assert not share_memory(storage.view(4, 5)[:, 0], storage[16:])
    assert not share_memory(torch.ones(2, device="meta"), torch.ones(2, device="meta"))
