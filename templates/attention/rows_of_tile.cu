  // The rows of all tiles of a head, also behind the last query of the sequence, and the position in the sequence and the head of a row.
//% if packed
  __device__ __forceinline__ i32 all_rows(const Arguments& args) const { return stored_queries(args, sequence) * kGroup; }
  __device__ __forceinline__ static i32 position_of(i32 row) { return static_cast<i32>(static_cast<u32>(row) / kGroup); }
  __device__ __forceinline__ i32 head_of(i32 row) const { return head + static_cast<i32>(static_cast<u32>(row) % kGroup); }
//% else
  __device__ __forceinline__ i32 all_rows(const Arguments& args) const { return stored_queries(args, sequence); }
  __device__ __forceinline__ static i32 position_of(i32 row) { return row; }
  __device__ __forceinline__ i32 head_of(i32 /*row*/) const { return head; }
//% end
