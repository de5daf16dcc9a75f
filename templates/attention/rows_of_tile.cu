  // The rows of all tiles of a head, also behind the last query of the sequence, and the position in the sequence and the head of a row.
//% if packed
//% if packed_sequences
  __device__ __forceinline__ i32 all_rows(const Arguments&) const { return sequence.stored_queries * kGroup; }
//% else
  __device__ __forceinline__ i32 all_rows(const Arguments& args) const { return stored_queries(args) * kGroup; }
//% end
  __device__ __forceinline__ static i32 position_of(i32 row) { return static_cast<i32>(static_cast<u32>(row) / kGroup); }
  __device__ __forceinline__ i32 head_of(i32 row) const { return head + static_cast<i32>(static_cast<u32>(row) % kGroup); }
//% else
//% if packed_sequences
  __device__ __forceinline__ i32 all_rows(const Arguments&) const { return sequence.stored_queries; }
//% else
  __device__ __forceinline__ i32 all_rows(const Arguments& args) const { return stored_queries(args); }
//% end
  __device__ __forceinline__ static i32 position_of(i32 row) { return row; }
  __device__ __forceinline__ i32 head_of(i32 /*row*/) const { return head; }
//% end
