#pragma once

#include <cuda.h>

/* What the fake libcuda.so.1 does for tests beside being one. */
#ifdef __cplusplus
extern "C" {
#endif

CUcontext fake_cuda_primary(int device);       /* as cuDevicePrimaryCtxRetain tells it */
CUcontext fake_cuda_own(int device);           /* as cuCtxCreate would make one */
void fake_cuda_set_current(CUcontext context); /* in the calling thread */
int fake_cuda_retained(int device);            /* how often the primary context is held */
unsigned fake_cuda_launches(void);             /* so far */

/* A stream captures in the global mode until the end, which tells whether the capture still stands. */
void fake_cuda_begin_capture(void);
int fake_cuda_end_capture(void);
CUstreamCaptureMode fake_cuda_thread_mode(void); /* of the calling thread */

#ifdef __cplusplus
}
#endif
