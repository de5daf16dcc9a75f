__device__ __forceinline__ AttendedKeys attended_keys(const Arguments&, const SequenceRows& rows, i32 /*query*/) { return {0, rows.keys}; }
