#include <fmt/core.h>

#include "attune/attention.h"
#include "generator/error.h"
#include "runtime/oracle/reference_attention.h"
#include "tuner/cli/config_options.h"
#include "tuner/cli/device_options.h"
#include "tuner/cli/exit_status.h"
#include "tuner/cli/output.h"
#include "tuner/cli/problem_options.h"
#include "tuner/cli/qkv_file.h"
#include "tuner/cli/report.h"
#include "tuner/cli/verb.h"
#include "tuner/database/output_file.h"
#include "tuner/database/system_database.h"
#include "tuner/trial/trial.h"

namespace attune::cli {
namespace {

struct RunOptions {
  OutputOptions output;
  ProblemOptions problem;
  DeviceOptions device;
  ConfigOptions config;
  std::string input_path, output_path;
  bool check = false;
};

template <typename Value>
DeviceBuffer upload(const std::shared_ptr<Device>& device, const std::vector<Value>& values) {
  DeviceBuffer buffer(device, values.size() * sizeof(Value));
  device->copy_to_device(buffer.pointer(), values.data(), buffer.bytes());
  return buffer;
}

TensorView view_of(const AttentionProblem& problem, Operand operand, const DeviceBuffer& buffer) {
  return packed_view(problem, operand, reinterpret_cast<const void*>(buffer.pointer()));
}

struct Outputs {
  std::vector<std::uint16_t> o;
  std::vector<float> lse;
};

Outputs forward(AttentionRuntime& runtime, const PreparedAttention& prepared, const AttentionProblem& problem,
                const QkvFile& input, const TermValues& terms) {
  const std::shared_ptr<Device>& device = runtime.device();
  Outputs outputs{std::vector<std::uint16_t>(element_count(problem, Operand::o)),
                  std::vector<float>(element_count(problem, Operand::lse))};
  const DeviceBuffer q = upload(device, input.q), k = upload(device, input.k), v = upload(device, input.v);
  const DeviceTerms device_terms(device, problem, terms);
  const DeviceBuffer o(device, outputs.o.size() * sizeof(std::uint16_t)),
      lse(device, outputs.lse.size() * sizeof(float));
  // 0xff bytes are NaN in every type: an element that the kernel leaves out shows.
  device->fill(o.pointer(), 0xff, o.bytes());
  device->fill(lse.pointer(), 0xff, lse.bytes());
  const DeviceBuffer workspace(device, prepared.plan.workspace_bytes_of(problem));
  Tensors tensors;
  tensors[Operand::q] = view_of(problem, Operand::q, q);
  tensors[Operand::k] = view_of(problem, Operand::k, k);
  tensors[Operand::v] = view_of(problem, Operand::v, v);
  tensors[Operand::o] = view_of(problem, Operand::o, o);
  tensors[Operand::lse].data = reinterpret_cast<const void*>(lse.pointer());
  device_terms.add_to(&tensors);
  runtime.launch(prepared, problem, tensors, reinterpret_cast<void*>(workspace.pointer()), workspace.bytes(), nullptr);
  device->synchronize(nullptr);
  device->copy_from_device(outputs.o.data(), o.pointer(), o.bytes());
  device->copy_from_device(outputs.lse.data(), lse.pointer(), lse.bytes());
  return outputs;
}

/// By the CPU, unless that would take long and there is a GPU: then by the fp64 kernel.
ReferenceForward reference_of(AttentionRuntime& runtime, const AttentionProblem& problem, const QkvFile& input,
                              const TermValues& terms) {
  const std::shared_ptr<Device>& device = runtime.device();
  if (!device->can_time() || count_flops(problem) <= kCpuOracleFlops) {
    return reference_forward(problem, input.q, input.k, input.v, terms);
  }
  const DeviceBuffer q = upload(device, input.q), k = upload(device, input.k), v = upload(device, input.v);
  const DeviceTerms device_terms(device, problem, terms);
  Tensors tensors;
  tensors[Operand::q] = view_of(problem, Operand::q, q);
  tensors[Operand::k] = view_of(problem, Operand::k, k);
  tensors[Operand::v] = view_of(problem, Operand::v, v);
  device_terms.add_to(&tensors);
  return reference_forward_on_device(device, problem, tensors);
}

int run(const RunOptions& options) {
  options.output.leave_stdout_to(options.output_path);
  const QkvFile input = read_qkv(options.input_path, options.problem.layout());
  const AttentionProblem problem = with_sequences_of(options.input_path, options.problem.problem_of(input.problem));
  const TermValues terms = read_terms(options.input_path, problem);
  const ChosenDevice chosen = options.device.choose();
  if (!chosen.why.empty()) warn(chosen.why);
  const std::shared_ptr<TunedConfigs> tuned = options.config.open_tuned_configs(options.output);
  // Before the work: a config that does not fit, a folder that cannot be written.
  const ConfigChoice picked = options.config.pick(problem, chosen.spec, tuned.get());
  std::vector<std::filesystem::path> inputs = system_database_paths();
  inputs.insert(inputs.end(), {options.input_path, options.config.database_path()});
  require_writable_output(options.output_path, {.inputs = inputs, .binary = true});

  AttentionRuntime runtime(options.device.open(chosen), tuned);
  const bool given = options.config.given();
  const auto prepared = runtime.prepare(problem, given ? std::optional(picked.config) : std::nullopt);
  const ConfigChoice& choice = given ? picked : prepared->choice;  // another one, where a pick does not compile
  const Outputs outputs = forward(runtime, *prepared, problem, input, terms);
  write_output(options.output_path, problem, outputs.o, outputs.lse, canonical_text(choice.config), inputs);

  ForwardErrors errors;
  if (options.check) {
    errors = compare_forward(problem, reference_of(runtime, problem, input, terms), outputs.o, outputs.lse);
  }
  const bool within = !options.check || errors.within();
  if (options.output.json) {
    Json document = {{"status", within ? "ok" : "wrong_result"},
                     {"problem", canonical_text(problem)},
                     {"device", runtime.device()->description()}};
    add_choice(document, choice);
    document["input"] = options.input_path;
    document["output"] = options.output_path;
    if (options.check) document["outputs"] = to_json(errors.outputs);
    print_json(document);
  } else {
    print_field("problem", canonical_text(problem));
    print_field("device", runtime.device()->description());
    print_field("config", canonical_text(choice.config));
    print_origin(choice, chosen);
    print_field("written", fmt::format("{} (o, lse)", options.output_path));
    if (options.check) print_errors(errors.outputs);
  }
  return within ? kOk : kCheckFailed;
}

}  // namespace

Verb make_run(CommandLine& command) {
  auto options = std::make_shared<RunOptions>();
  CommandLine* verb =
      add_verb(command, "run",
               "compute attention of real tensors: read q, k and v of a safetensors file, write o and lse to another",
               "attune input --output qkv.safetensors --heads 4 --seq 256 --head-dim 64\n"
               "attune run --input qkv.safetensors --output o.safetensors --causal");
  verb->add_option(
          "--input", options->input_path,
          "safetensors with q, k and v (F16 or BF16), 4-D in the order of --layout: (batch, seq, head, dim) "
          "for bshd; with "
          "--sink also sinks (F32), one for each query head; with --alibi also alibi_slopes (F32), one for each "
          "batch entry and query head; with --bias and --attention-mask also bias (as q, or F32 with --bias-fp32) and "
          "attention_mask (BOOL), (batch, query heads, queries, keys) with 1 of those along which they repeat; with "
          "--lengths used also seqused_q and "
          "seqused_kv (I32), or one of them, a number of rows for each batch entry; with --packed cu_seqlens_q and "
          "cu_seqlens_kv (I32), the row where each sequence begins and where the last one ends")
      .required();
  verb->add_option("--output", options->output_path,
                   "safetensors to write: o as q is, lse as F32 (batch, head, seq); - is standard output")
      .required();
  verb->add_flag("--check", options->check, "compare with the oracle too; exit status 1 if an error is out of bounds");
  options->problem.add_to(*verb, Passes::forward, Sizes::optional);
  options->device.add_to(*verb);
  options->config.add_config_to(*verb);
  options->config.add_database_to(*verb);
  options->output.add_to(*verb);
  return {verb, [options] { return run(*options); }};
}

}  // namespace attune::cli
