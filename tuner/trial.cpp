#include "tuner/trial.h"
