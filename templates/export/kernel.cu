// ${title}
// ${licence}
//
// ${problem}
// ${config}
// ${gpu}
//
// The kernels of ${name}(), in the order in which they are launched; launch.cpp launches them. nvcc and NVRTC take this file as it is.

// Kernels of one family share names that some of them do not use, and loops that have no turns in some.
#pragma nv_diag_suppress 128
#pragma nv_diag_suppress 177

namespace ${name}_kernels {
//% for kernels

${kernels.source}
//% end

}  // namespace ${name}_kernels

#ifndef __CUDACC_RTC__
// A kernel by its number, for launch.cpp.
extern "C" const void* ${name}_kernel(int number) {
  switch (number) {
//% for kernels
    case ${kernels.number}:
      return reinterpret_cast<const void*>(&${name}_kernels::${kernels.scope}::${kernels.entry});
//% end
  }
  return nullptr;
}
#endif
