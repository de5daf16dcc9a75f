#pragma once

#include <algorithm>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "generator/config/config_fields.h"
#include "generator/config/kernel_config.h"
#include "generator/families/kernel_family.h"
#include "generator/problem/attention_problem.h"

namespace attune {

/// Valid problems and well-formed configs, the same for the same seed on any machine.
class RandomValues {
 public:
  explicit RandomValues(unsigned seed) : engine_(seed) {}

  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool coin() { return between(0, 1) == 1; }

  AttentionProblem problem() {
    AttentionProblem problem;
    problem.dtype = coin() ? DataType::fp16 : DataType::bf16;
    problem.batch = between(1, 9);
    problem.heads_kv = between(1, 6);
    problem.heads_q = problem.heads_kv * between(1, 4);
    problem.seq_q = between(1, 9000);
    problem.seq_kv = coin() ? problem.seq_q : between(1, 9000);
    problem.head_dim = static_cast<int>(8 * between(1, 32));
    problem.softmax_scale =
        coin() ? default_softmax_scale(problem.head_dim) : static_cast<float>(between(1, 1 << 24)) / 12345678.0f;
    if (coin()) {
      problem.mask = MaskKind::causal;
      const std::int64_t offsets[] = {problem.seq_kv - problem.seq_q, 0, between(-9000, 9000)};
      problem.mask_offset = offsets[between(0, 2)];
    }
    if (coin()) {
      const std::int64_t first = between(-9000, 9000), last = coin() ? kOpenDiagonal : first + between(0, 9000);
      AttentionProblem both = problem;
      hide_outside(first, last, &both);
      if (both.mask != MaskKind::window || both.first_offset <= both.mask_offset) problem = both;
    }
    problem.layout = coin() ? Layout::bshd : Layout::bhsd;
    problem.alignment = coin() ? 16 : 2;
    problem.invariant = between(0, 7) == 0;
    if (between(0, 7) == 0) problem.softcap = static_cast<float>(between(1, 1000)) / 10;
    return problem;
  }

  KernelConfig config() {
    const auto families = kernel_families();
    KernelConfig config = default_fields(families[static_cast<std::size_t>(between(0, std::ssize(families) - 1))].word);
    for (const ConfigField& field : config_fields()) {
      if ((field.families & families_of(config.family)) != 0 && coin())
        field.set(config,
                  static_cast<int>(field.least + field.step * between(0, (field.most - field.least) / field.step)));
    }
    return config;
  }

  std::string shuffled_words(const std::string& text, std::size_t fixed = 0) {
    std::istringstream stream(text);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    for (std::size_t i = words.size(); i > fixed + 1; --i) {
      std::swap(words[i - 1],
                words[fixed + static_cast<std::size_t>(between(0, static_cast<std::int64_t>(i - fixed - 1)))]);
    }
    std::string result;
    for (const std::string& word : words) result += word + " ";
    return result;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace attune
