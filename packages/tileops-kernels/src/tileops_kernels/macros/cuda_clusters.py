"""Clusters of blocks on CUDA: what blocks that run side by side tell one another through their shared memory.

A program with `T.Kernel(..., cluster_dims=)` that uses these has CLUSTERS in its prelude. Every thread of every block
of a cluster must arrive and wait alike: once between clear_told and the first value that is told, so that all blocks
have begun, and once before what was told is read.
"""

import tilelang.language as T  # noqa: N812

CLUSTERS = """
static __device__ __forceinline__ int tileops_cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  return 0;
}
static __device__ __forceinline__ int tileops_cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  return 0;
}
static __device__ __forceinline__ int tileops_tell(void *own, float value, int rank) {
  unsigned here = (unsigned)__cvta_generic_to_shared(own), there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
  asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(there), "f"(value) : "memory");
  return 0;
}
"""
"""CUDA text for `T.Kernel(..., prelude=)`."""


@T.macro
def clear_told(told, rows, cluster, lane):
    """Begin the use of `told`, shared, (rows, cluster), before this thread arrives for the first time.

    TileLang lays shared arrays over one another whose uses follow each other, and knows of no other block's writes.
    """
    if lane < cluster:
        for row in T.unroll(rows):
            told[row, lane] = T.float32(0)


@T.macro
def arrive():
    """Say that this thread has come so far; it goes on."""
    T.evaluate(T.call_extern("int32", "tileops_cluster_arrive"))


@T.macro
def wait():
    """Wait until every thread of the cluster has arrived; what they told before is then there."""
    T.evaluate(T.call_extern("int32", "tileops_cluster_wait"))


@T.macro
def tell(shared, row, place, value, rank):
    """Set shared[row, place] of block `rank` of the cluster to `value`, a float32."""
    T.evaluate(T.call_extern("int32", "tileops_tell", T.address_of(shared[row, place]), value, rank))
