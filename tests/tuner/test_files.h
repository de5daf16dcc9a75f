#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/temporary_folder.h"
#include "tuner/database/measurement.h"

namespace attune::test {

using testing::TemporaryFolder;

/// An executable shell script.
inline std::string write_script(const std::filesystem::path& path, const std::string& body) {
  std::ofstream(path) << "#!/bin/sh\n" << body;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path.string();
}

/// The program of this name in the folder of this test program.
inline std::string sibling_program(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

/// A row that could have been measured, with every field set.
inline Measurement example_measurement(const std::string& problem = "forward bf16 b2 hq8 sq1024 d64 causal",
                                       const std::string& config = "sm80 q128 kv64 w4 st2", double median_us = 100) {
  Measurement m;
  m.problem = parse_problem(problem);
  m.config = parse_config(config);
  m.device = "NVIDIA H200";
  m.sm_count = 132;
  m.rigor = Rigor::measure;
  m.samples_us = {median_us * 0.99, median_us, median_us * 1.01};
  m.clocks_mhz = {1605, 1620, 1635};
  m.summarize();
  m.predicted_us = median_us / 2;
  m.error_o = 0.00213;
  m.error_lse = 1.5e-6;
  m.registers = 168;
  m.spill_bytes = 8;
  m.shared_bytes = 65536;
  m.compile_ms = 812.25;
  m.templates_hash = "0123456789abcdef";
  m.compiler = "NVRTC 13.0 (test)";
  m.driver = "13.0";
  m.protocol = "cold inputs";
  m.attune_version = "0.1.0";
  m.created_at = "2025-01-31T12:00:00.000001Z";
  return m;
}

}  // namespace attune::test
