#include "attune/attention.h"
