// Each CTA loads the tiles of K and V that it needs.
struct KvLoads {
  Barriers barriers;

  // Loads into a buffer that this CTA's consumers have left.
  __device__ __forceinline__ void load(u32 to, const TensorMap& map, u32 full, i32 head, MapPlace place) {
    load_tile<kKvPanelStride>(to, map, full, head, place);
  }
};
