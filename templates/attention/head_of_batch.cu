// The batch entry and the head of a tile's place among all `heads` of all batch entries: one batch entry after the other; but where a tensor has no
// dimension of batches and one of heads, a head in all batch entries, then the next head, so that its elements are read again while they are in L2.
struct HeadOfBatch {
  i32 batch, head;

  __device__ __forceinline__ HeadOfBatch(const Arguments& args, i32 place, i32 heads) {
    if (${repeats_along_batch}) {
      head = place / args.batch;
      batch = place - head * args.batch;
    } else {
      batch = place / heads;
      head = place - batch * heads;
    }
  }
};
