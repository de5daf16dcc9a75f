// A compiler makes 2^depth classes of this: minutes, and gigabytes in the end.
template <i32 kDepth, u64 kPath>
struct Tree {
  static constexpr u64 kLeaves = Tree<kDepth - 1, 2 * kPath>::kLeaves + Tree<kDepth - 1, 2 * kPath + 1>::kLeaves;
};
template <u64 kPath>
struct Tree<0, kPath> {
  static constexpr u64 kLeaves = 1;
};
static_assert(Tree<behaves("compiles_for_ever") ? 22 : 0, 1>::kLeaves > 0);
