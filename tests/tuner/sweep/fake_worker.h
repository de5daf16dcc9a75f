#pragma once

#include <fmt/format.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "generator/config/config_space.h"
#include "generator/generate.h"
#include "tests/tuner/test_files.h"
#include "tuner/search/searcher.h"
#include "tuner/sweep/sweep.h"

namespace attune::test {

inline const char* const kProblem = "forward bf16 b1 hq8 sq1024 d64";

/// A worker in shell: what it does on a trial, which has $config and $problem, is `on_trial`; in a race each config
/// takes what its trial says, with wide scores too if these are asked for, unless `on_race` does something else. It
/// keeps a list of all requests.
struct FakeWorker {
  std::string on_trial, on_compile = "", on_race = "race_by_trials", compiler = "C1", device = "NVIDIA H200";
};

/// The script of a worker, in the folder where it keeps its lists.
inline std::string fake_worker(const TemporaryFolder& folder, const FakeWorker& fake) {
  return write_script(folder / "attune", fmt::format(R"sh(
exec 2>/dev/null
# The text of a field of $line. The shell's own means alone: programs would take most of a sweep's time.
text_of() {{
  case "$line" in *"\"$1\":\""*) rest=${{line#*\"$1\":\"}}; printf '%s' "${{rest%%\"*}}" ;; esac
}}
measured() {{
  echo "{{\"measurement\":{{\"problem\":\"$problem\",\"config\":\"$config\",\"samples_us\":[$1],\"median_us\":$1,\"rigor\":\"measure\"}}}}"
}}
on_trial() {{
  {1}
}}
race_by_trials() {{
  samples=""; clocks=""
  old=$IFS; IFS=,
  for quoted in $configs; do
    config=${{quoted#?}}; config=${{config%?}}
    IFS=$old
    t=$(on_trial); t=${{t#*\"median_us\":}}; t=${{t%%,*}}
    IFS=,
    samples="$samples,[$t,$t,$t,$t,$t,$t,$t,$t]"; clocks="$clocks,[1500,1500,1500,1500,1500,1500,1500,1500]"
  done
  IFS=$old
  wide=""
  case "$line" in *'"wide":true'*) wide="\"wide_samples_us\":[${{samples#,}}]," ;; esac
  echo "{{\"race\":{{$wide\"samples_us\":[${{samples#,}}],\"clocks_mhz\":[${{clocks#,}}],\"protocol\":\"in turns\"}}}}"
}}
while read -r line; do
  config=$(text_of config); configs=""
  case "$line" in *'"configs":['*) configs=${{line#*\"configs\":[}}; configs=${{configs%%]*}} ;; esac
  problem=$(text_of problem); device=$(text_of device); op=$(text_of op)
  echo "$op $config$configs" >> {0}/requests
  echo "$op $device" >> {0}/devices
  case $op in
    prepare) echo '{{"prepared":true}}' ;;
    identify) echo '{{"device_name":"{5}","sm_count":132,"compiler":"{4}","driver":"D1","can_time":true,"host":"node-7","gpu_uuid":"GPU-of-'"$device"'","power_limit_w":700}}' ;;
    compile) {2} echo '{{"status":"ok","reason":""}}' ;;
    trial) on_trial ;;
    race) {3} ;;
  esac
done
)sh",
                                                     folder.path().string(), fake.on_trial, fake.on_compile,
                                                     fake.on_race, fake.compiler, fake.device));
}

/// What the worker was asked to do of one kind: the configs.
inline std::multiset<std::string> requests(const TemporaryFolder& folder, const std::string& op) {
  std::multiset<std::string> found;
  std::ifstream file(folder / "requests");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(op + " ")) found.insert(line.substr(op.size() + 1));
  }
  return found;
}

/// Options of the reduced space, which is listed in a fraction of the time.
inline SweepOptions options_for(const std::string& command, int max_candidates) {
  SweepOptions options;
  options.extent = SpaceExtent::reduced;
  options.device = "cuda:0";
  options.spec = find_device("h200");
  options.command = command;
  options.max_candidates = max_candidates;
  options.compile_workers = 2;
  options.trial_timeout_seconds = 20;
  return options;
}

/// What a search without earlier rows asks for first, if nothing improves.
inline std::vector<std::string> expected_order(std::size_t count, SpaceExtent extent = SpaceExtent::reduced) {
  const AttentionProblem problem = parse_problem(kProblem);
  const DeviceSpec& h200 = find_device("h200");
  std::vector<Candidate> space;
  for (Candidate& candidate : config_space(problem, h200, extent)) {
    if (candidate.feasible()) space.push_back(std::move(candidate));
  }
  std::vector<KernelConfig> seeds = {default_config(problem, h200)};
  for (const KernelConfig& seed : published_seeds(problem, space)) seeds.push_back(seed);
  const Searcher searcher(space, seeds,
                          {.model_top = effort_of(Rigor::measure, space.size()).model_top, .patience = 1});
  std::vector<std::string> configs;
  for (const std::size_t index : searcher.upcoming(count)) configs.push_back(canonical_text(space[index].config));
  return configs;
}

}  // namespace attune::test
