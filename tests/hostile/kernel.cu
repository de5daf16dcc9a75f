//% -- The end of kernels/forward_sm80 in the tests of misbehaving candidates: what was its kernel is honest_forward by now, and a config
//% -- misbehaves as hostile/table, which a test writes, says of its name.

constexpr const char kName[] =
    "${dtype} d${head_dim_qk} ${mask} q${block_q} kv${block_kv} w${warps} st${stages} cta${ctas_per_sm} ${query_operand} ${tile_order} ${rescale_threshold} ${even_tiles}";

__device__ constexpr bool same_text(const char* a, const char* b) {
  while (*a != 0 && *a == *b) ++a, ++b;
  return *a == *b;
}
// Whether this kernel is one that does so: the first row that names it says it.
__device__ constexpr bool behaves(const char* behaviour) {
  struct Row {
    const char *name, *behaviour;  // no name: all
  };
  constexpr Row rows[] = {
    //% include hostile/table
    {"", "honest"},
  };
  for (const Row& row : rows)
    if (*row.name == 0 || same_text(row.name, kName)) return same_text(row.behaviour, behaviour);
  return false;
}

// Element (0, 0, 0, 0) of Q and O is this CTA's, and this thread speaks for it.
__device__ __forceinline__ bool owns_first_element(const Arguments& args) {
  const QueryTile tile(args);
  return tile.sequence.batch == 0 && tile.head == 0 && tile.first_row == 0 && thread_index() == 0;
}
constexpr u16 kNeverAnInput = 0x7fff;  // a NaN, in both dtypes

//% include hostile/does_not_compile
//% include hostile/compiles_for_ever
//% include hostile/hangs
//% include hostile/deadlocks
//% include hostile/faults
//% include hostile/wrong
//% include hostile/out_of_bounds
//% include hostile/writes_inputs
//% include hostile/leaves_gaps
//% include hostile/accumulates

extern "C" __global__ void __launch_bounds__(kThreads, kCtasPerSm) ${entry}(const __grid_constant__ Arguments args) {
  if constexpr (behaves("hangs")) {
    hangs(args);
  } else if constexpr (behaves("deadlocks")) {
    deadlocks(args);
  } else if constexpr (behaves("faults")) {
    faults(args);
  } else if constexpr (behaves("wrong")) {
    wrong(args);
  } else if constexpr (behaves("out_of_bounds")) {
    out_of_bounds(args);
  } else if constexpr (behaves("writes_inputs")) {
    writes_inputs(args);
  } else if constexpr (behaves("leaves_gaps")) {
    leaves_gaps(args);
  } else if constexpr (behaves("accumulates")) {
    accumulates(args);
  } else {
    honest_forward(args);
  }
}
