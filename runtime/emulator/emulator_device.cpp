#include "runtime/emulator/emulator_device.h"
