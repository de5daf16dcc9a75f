// Streams LSE·log2(e) and delta of a block's queries beside its Q and dO.
struct LseDeltaStream {
  static constexpr u32 kBytes = 8 * kBlockQ, kCopies = kBytes / 16;
  const char* next;

  // first_row counts through all heads of the workspace.
  __device__ __forceinline__ LseDeltaStream(const Arguments& args, i64 first_row)
      : next(reinterpret_cast<const char*>(args.statistics) + 8 * first_row + 16 * thread_index()) {}
  __device__ __forceinline__ void load_next(u32 shared, i32 into) {
#pragma unroll
    for (u32 i = 0; i < kCopies; i += kThreads) {
      if (kCopies % kThreads == 0 || i + thread_index() < kCopies)
        cp_async_cg_16(shared + kStatisticsOffset + into * kBytes + 16 * (i + thread_index()), next + 16 * i, 16);
    }
    next += kBytes;
  }
};

// The statistics of two neighbouring queries of the block; the first of them is even.
__device__ __forceinline__ void load_statistics(QueryStatistics (&two)[2], u32 shared, i32 stage, i32 query) {
  const Vec4F32 read = ld_shared_v4_f32(shared + kStatisticsOffset + stage * LseDeltaStream::kBytes + 8 * query);
  two[0] = {read.x, read.y};
  two[1] = {read.z, read.w};
}
