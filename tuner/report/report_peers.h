#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/problem/attention_problem.h"

namespace attune {

/// Another library's time of a problem, and Attune's own beside it: they took turns in one process.
struct PeerTime {
  std::string peer;    ///< as the file has it: "fa2", "cudnn"
  std::string error;   ///< why it has no time, in the peer's words; empty if it has one
  bool within = true;  ///< whether its output was right
  double median_us = 0, p20_us = 0, p80_us = 0;
  int samples = 0;
};

struct PeerRow {
  AttentionProblem problem;
  std::string config;  ///< Attune's, canonical text
  double attune_us = 0, attune_p20_us = 0, attune_p80_us = 0;
  std::vector<PeerTime> peers;  ///< in the file's order
};

/// What `compare_with_torch.py --json` writes.
struct PeerFile {
  std::string name;  ///< of the file, for messages and for the page
  std::string gpu;   ///< as the driver names it
  int sm_count = 0;  ///< 0 if the file does not say
  std::string protocol;
  std::vector<std::pair<std::string, std::string>> versions;  ///< of what took part: {"torch", "2.11.0"}, ...
  std::vector<PeerRow> rows;
};

/// Rows of other data than "normal:1" are left out. Throws Error(invalid_argument) that begins with `name` and gives
/// the number of the row and the field that is missing or malformed.
PeerFile parse_peers(std::string_view json, const std::string& name);

/// "FlashAttention-2" of "fa2"; a name that is not known stays as it is.
std::string peer_title(const std::string& peer);

}  // namespace attune
