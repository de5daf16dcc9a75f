// A place in a ring of kCount buffers that producer and consumers walk in step, and the parity of its round: a buffer is full when the phase
// of that parity of its full barrier has completed, and free for the round when that of the other parity of its empty barrier has.
template <i32 kCount>
struct PipelineSlot {
  i32 stage = 0;
  u32 parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == kCount) {
      stage = 0;
      parity ^= 1;
    }
  }
};
