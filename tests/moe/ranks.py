"""What each rank of a group of processes runs for the tests of experts that are shared among ranks."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from tileops.moe import ExpertParallelPrepareFinalize, FusedMoEFwdOp
from tileops_testing.inputs import TensorInput

EXPERTS, TOP_K, HIDDEN, WIDTH = 8, 3, 64, 32
TOKENS = (5, 0, 40, 1)
"""The tokens of each rank: one has none."""
SPAWN = multiprocessing.get_context("spawn")
TIMEOUT = timedelta(seconds=60)


def make(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The same tensor in every process."""
    return TensorInput(shape=shape, dtype=dtype).make(seed, torch.device("cpu"))


def weights() -> tuple[Tensor, Tensor]:
    """All experts' weights, of unit results."""
    gate_up, down = make((EXPERTS, 2 * WIDTH, HIDDEN), 1), make((EXPERTS, HIDDEN, WIDTH), 2)
    return (gate_up / HIDDEN**0.5).bfloat16(), (down / WIDTH**0.5).bfloat16()


def tokens_of(rank: int) -> tuple[Tensor, Tensor]:
    """A rank's tokens and their logits for all experts."""
    count = TOKENS[rank]
    return make((count, HIDDEN), 10 + rank, torch.bfloat16), make((count, EXPERTS), 20 + rank)


def device_of(rank: int, device: str) -> torch.device:
    """The device of a rank: on CUDA its own."""
    return torch.device("cuda", rank) if device == "cuda" else torch.device("cpu")


def run_ranks(program: Callable[..., Any], size: int, device: str, folder: Path) -> list[Any]:
    """Run `program(rank, size, device)` in as many processes as ranks, in one group, and return what each returns."""
    group = [SPAWN.Process(target=_rank, args=(rank, program, size, device, folder)) for rank in range(size)]
    for process in group:
        process.start()
    for process in group:
        process.join()
    assert [process.exitcode for process in group] == [0] * size
    return [torch.load(folder / f"{rank}.pt") for rank in range(size)]


def _rank(rank: int, program: Callable[..., Any], size: int, device: str, folder: Path) -> None:
    torch.set_num_threads(1)
    place = device_of(rank, device)
    if place.type == "cuda":
        torch.cuda.set_device(place)
    backend = "nccl" if place.type == "cuda" else "gloo"
    store = f"file://{folder / 'store'}"
    distributed.init_process_group(backend, init_method=store, rank=rank, world_size=size, timeout=TIMEOUT)
    try:
        torch.save(program(rank, size, place), folder / f"{rank}.pt")
    finally:
        distributed.destroy_process_group()


def mixture(rank: int, size: int, device: torch.device) -> Mapping[str, Any]:
    """The mixture over all ranks, twice with each one's tokens, once with none, and what is refused."""
    op = FusedMoEFwdOp(
        TOP_K, renormalize=True, routed_scaling_factor=1.5, prepare_finalize=ExpertParallelPrepareFinalize(EXPERTS)
    )
    here = slice(rank * EXPERTS // size, (rank + 1) * EXPERTS // size)
    gate_up, down = (tensor[here].to(device) for tensor in weights())
    x, logits = (tensor.to(device) for tensor in tokens_of(rank))
    results = [op(x, logits, gate_up, down).cpu() for _ in range(2)]
    stages = list(op.last_call.stages)
    nothing = op(x[:0], logits[:0], gate_up, down).cpu()
    refused = refusals(op, rank, (x, logits, gate_up, down))
    return {"results": results, "stages": stages, "ep_size": op.ep_size, "nothing": nothing, "refused": refused}


def one_rank_dies(rank: int, size: int, device: torch.device) -> str:
    """The last rank is gone before the call: the others' error."""
    if rank == size - 1:
        torch.save("gone", Path(os.environ["TILEOPS_TEST_RANKS"]) / f"{rank}.pt")
        os._exit(0)
    try:
        mixture(rank, size, device)
    except RuntimeError as error:
        return type(error).__name__
    return "no error"


def refusals(op: FusedMoEFwdOp, rank: int, given: tuple[Tensor, Tensor, Tensor, Tensor]) -> list[str]:
    """What is refused once a group stands: before anything is sent, and last what ranks call unlike each other."""
    x, logits, gate_up, down = given
    wrong: tuple[Callable[[], object], ...] = (
        lambda: ExpertParallelPrepareFinalize(EXPERTS + 1),
        lambda: op(x, logits[:, : EXPERTS // 2], gate_up[::2], down[::2]),
        lambda: op(x, logits, gate_up[1:], down[1:]),
        lambda: torch.compile(op, fullgraph=True, backend="eager")(x, logits, gate_up, down),
        lambda: op(x[:, rank:], logits, gate_up[..., rank:], down[:, rank:]),
    )
    found = []
    for call in wrong:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - every refusal is reported
            found.append(str(error))
    return found
