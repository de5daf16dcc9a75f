// Changes the scores q·k of a block before they are masked: into tanh(scale q·k / softcap), of which softmax takes the exponentials of softcap times as much.
struct ScoreFunction {
  float tanh_scale;

  __device__ __forceinline__ explicit ScoreFunction(const Arguments& args) : tanh_scale(args.tanh_scale) {}
  __device__ __forceinline__ void modify(float& score) const { score = tanh_approx_f32(score * tanh_scale); }
  template <typename Scores, u32 kCount>
  __device__ __forceinline__ void modify(Scores (&scores)[kCount]) const {
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) modify(scores[i]);
  }
  // P times the derivative of the change, 1 - tanh², from the changed score; 0 of a hidden one, whose square is infinite.
  __device__ __forceinline__ float slope(float p, float changed) const { return p * fma_rn_sat_f32(-changed, changed, 1.0f); }
};
