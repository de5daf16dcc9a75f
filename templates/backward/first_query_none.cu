// The first query that attends to a key; seq_q if none does.
__device__ __forceinline__ i32 first_query(const Arguments&, i32 /*key*/) { return 0; }
