// Changes the scores q·k of a block before they are masked, and takes a gradient back through that change. Here scores stay as they are.
struct ScoreFunction {
  __device__ __forceinline__ void modify(ScoreFragments& /*scores*/) {}
  __device__ __forceinline__ void differentiate(ScoreFragments& /*gradients*/) const {}
};
