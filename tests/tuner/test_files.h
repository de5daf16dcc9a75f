#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "generator/device/device_spec.h"
#include "generator/generate.h"
#include "tests/temporary_folder.h"
#include "tuner/database/current_build.h"
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

inline constexpr const char* kTestCompiler = "NVRTC 13.0 (test)";

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
  m.error_o = m.problem.dtype == DataType::fp16 ? 0.000213 : 0.00213;
  m.error_lse = 1.5e-6;
  m.registers = 168;
  m.spill_bytes = 8;
  m.shared_bytes = 65536;
  m.compile_ms = 812.25;
  m.source_hash = "0123456789abcdef";
  m.compiler = kTestCompiler;
  m.driver = "13.0";
  m.protocol = "cold inputs";
  m.attune_version = "0.1.0";
  m.created_at = "2025-01-31T12:00:00.000001Z";
  return m;
}

/// The row as this build measures it now, by kTestCompiler; unchanged if its config has no kernel.
inline Measurement measured_now(Measurement row) {
  std::optional<DeviceSpec> device = find_device_by_name(row.device);
  row.compiler = kTestCompiler;
  row.attune_version = attune_version();
  if (!device) return row;
  device->sm_count = row.sm_count;
  if (infeasibility(row.problem, row.config, *device).empty())
    row.source_hash = generate(row.problem, row.config, *device).source_hash();
  return row;
}

/// The same by the NVRTC that programs of this machine find, if there is one: what the command takes for current.
inline Measurement measured_here(Measurement row) {
  static const std::string kCompiler = CurrentBuild::of_process().compiler();
  row = measured_now(std::move(row));
  if (!kCompiler.empty()) row.compiler = kCompiler;
  return row;
}

/// What measured_now() is of.
inline std::shared_ptr<const CurrentBuild> test_build() {
  return std::make_shared<const CurrentBuild>(std::string(attune_version()), kTestCompiler, TemplateSet::embedded());
}

}  // namespace attune::test
