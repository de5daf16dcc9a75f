#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tuner/database/sqlite.h"
#include "tuner/database/tuning_database.h"

namespace attune {

/// Problems that are stored in another spelling than canonical_text() has, by that text: what files of schema 5 and
/// older hold of a mask that hides nothing. Their ids. Throws sqlite::Failure.
std::map<std::string, std::vector<std::int64_t>> other_spellings(sqlite::Connection& db);

/// TuningDatabase::near() as a query: every stored shape that can be compared with a problem, with its distance, the
/// nearest first. Throws sqlite::Failure.
std::vector<TuningDatabase::TunedShape> tuned_shapes_near(sqlite::Connection& db, const AttentionProblem& problem,
                                                          int sm_count);

/// Equal but for what a kernel takes as an argument at each call: rows of one answer for both.
bool same_but_scale_and_layout(AttentionProblem a, const AttentionProblem& b);

}  // namespace attune
