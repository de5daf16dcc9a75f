#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "generator/problem/attention_problem.h"

namespace attune {

/// A problem of a list, and what the list calls it.
struct NamedProblem {
  AttentionProblem problem;
  std::string name;  ///< empty: it has none
  friend bool operator==(const NamedProblem&, const NamedProblem&) = default;
};

/// Adds problems of which equal ones are listed once, in the order in which they come, with the names of all of them.
class ProblemList {
 public:
  void add(const AttentionProblem& problem, const std::string& name);
  bool empty() const { return problems_.empty(); }
  std::vector<NamedProblem> take() { return std::move(problems_); }

 private:
  std::vector<NamedProblem> problems_;
  std::unordered_map<AttentionProblem, std::size_t, AttentionProblemHash> places_;
};

/// A list of problems from a file, by its ending. Equal problems are listed once, in the order of the file, with the
/// names of all of them ("prefill, chat").
///
///   .json  an array of canonical texts or objects:  ["forward bf16 hq8 sq512 d64", {"heads": 8, "seq": 512, ...}]
///   .csv   a header of field names, then a problem a line:  batch,heads,seq,head-dim,causal
///          A line that begins with # is a comment, before the header too; a first cell with a # is quoted.
///
/// The field name, beside any of the others, is what results call the problem. The others have the names of the
/// command's problem flags (also with '_' for '-') and the same defaults: problem (the whole canonical text, alone),
/// pass, dtype, batch, heads, kv-heads, seq, kv-seq, head-dim, mask, causal (true or false), scale, layout,
/// deterministic (true or false). The field lengths takes those of packed sequences, too, as parse_lengths() reads
/// them, and kv-lengths those of keys: they stand for packed, batch, seq, kv-seq and length-distribution. An empty cell
/// or null is an omitted field; seq and head-dim are needed.
///
/// Throws Error(io) if the file cannot be read, Error(invalid_argument) that names file, row (from 1, the header not
/// counted) and field for the first mistake, or that there is no problem at all.
std::vector<NamedProblem> read_shapes(const std::filesystem::path& path);

/// The same from a text; `name` stands for the file in messages.
std::vector<NamedProblem> parse_shapes_json(std::string_view text, const std::string& name);
std::vector<NamedProblem> parse_shapes_csv(std::string_view text, const std::string& name);

}  // namespace attune
