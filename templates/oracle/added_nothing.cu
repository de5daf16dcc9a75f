// What a score gains beside its product, of a query and a key of their sequence.
__device__ __forceinline__ double added_score(const Arguments&, const SequenceRows&, i64 /*batch*/, i32 /*head*/, i32 /*query*/, i32 /*key*/) { return 0; }
