//% include oracle/sequence_${lengths}

// Keys [begin, end) that a query attends to: said here once more, apart from what the kernels say.
struct AttendedKeys {
  i32 begin, end;
  __device__ __forceinline__ bool has(i32 key) const { return begin <= key && key < end; }
};

__device__ __forceinline__ i32 clamp_to_keys(const SequenceRows& rows, i64 key) {
  return static_cast<i32>(key < 0 ? 0 : key < rows.keys ? key : rows.keys);
}

//% include oracle/attended_keys_${mask}
