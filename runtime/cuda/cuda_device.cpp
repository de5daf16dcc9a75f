#include "runtime/cuda/cuda_device.h"
