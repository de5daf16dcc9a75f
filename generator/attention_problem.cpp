#include "generator/attention_problem.h"
