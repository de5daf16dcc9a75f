#include "tuner/tuning_database.h"
