// What the softmax sees of a block's scores q·k before they are masked, and how a gradient goes back through it: here they are as they are.
struct ScoreFunction {
  __device__ __forceinline__ void modify(ScoreFragments& /*scores*/) {}
  __device__ __forceinline__ void differentiate(ScoreFragments& /*gradients*/) const {}
};
