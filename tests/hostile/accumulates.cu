// Takes for zero what the output holds at the start, and adds to it: in fresh memory right by chance.
__device__ __forceinline__ void accumulates(const Arguments& args) {
  const bool mine = owns_first_element(args);
  const double before = mine ? cvt_f64_bf16(ld_global_b16(args.o)) : 0.0;
  bar_sync();
  honest_forward(args);
  bar_sync();
  if (!mine) return;
  const double own = cvt_f64_bf16(ld_global_b16(args.o));
  st_global_b16(args.o, static_cast<u16>(pack_elements(static_cast<float>(before + own), 0.0f)));
}
