#include "tuner/measurement.h"
