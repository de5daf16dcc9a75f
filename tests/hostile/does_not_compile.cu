static_assert(!behaves("does_not_compile"), "this candidate does not compile");
