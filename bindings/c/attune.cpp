#include "attune.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "attune/attention.h"
#include "attune/log.h"
#include "generator/error.h"
#include "generator/generate.h"
#include "generator/lazy_value.h"
#include "runtime/system/activity_mutex.h"
#include "tuner/database/machine_findings.h"
#include "tuner/database/measurement.h"
#include "tuner/database/packed_configs.h"
#include "tuner/database/tuned_configs.h"

using attune::AttentionProblem;
using attune::AttentionRuntime;
using attune::Error;
using attune::ErrorCode;

struct attune_prepared {
  AttentionRuntime* runtime;  // lives until the process ends
  std::shared_ptr<const attune::PreparedAttention> kernels;
};

namespace {

static_assert(-static_cast<int>(ErrorCode::internal) == ATTUNE_ERROR_INTERNAL &&
                  -static_cast<int>(ErrorCode::invalid_argument) == ATTUNE_ERROR_INVALID_ARGUMENT,
              "statuses are the negated error codes");

// Sizes that the structs had in the headers so far.
constexpr std::initializer_list<std::size_t> kProblemSizes = {80, 88, 104, 112, 120, 128, 136, 144, 160, 184};
static_assert(offsetof(attune_problem, pass) == 80 && offsetof(attune_problem, window_left) == 88 &&
              offsetof(attune_problem, invariant) == 104 && offsetof(attune_problem, sink) == 112 &&
              offsetof(attune_problem, alibi) == 120 && offsetof(attune_problem, bias_fp32) == 128 &&
              offsetof(attune_problem, bias_gradient) == 136 && offsetof(attune_problem, max_seq_q) == 144 &&
              offsetof(attune_problem, dropout) == 160 && sizeof(attune_problem) == 184);
static_assert(sizeof(attune_operand) == 40);

constexpr bool is_named(attune::Operand operand, std::int32_t name) {
  return static_cast<std::int32_t>(operand) == name;
}
static_assert(is_named(attune::Operand::q, ATTUNE_Q) && is_named(attune::Operand::k, ATTUNE_K) &&
              is_named(attune::Operand::v, ATTUNE_V) && is_named(attune::Operand::o, ATTUNE_O) &&
              is_named(attune::Operand::lse, ATTUNE_LSE) && is_named(attune::Operand::d_q, ATTUNE_D_Q) &&
              is_named(attune::Operand::d_k, ATTUNE_D_K) && is_named(attune::Operand::d_v, ATTUNE_D_V) &&
              is_named(attune::Operand::d_o, ATTUNE_D_O) && is_named(attune::Operand::d_lse, ATTUNE_D_LSE) &&
              is_named(attune::Operand::sinks, ATTUNE_SINKS) && is_named(attune::Operand::d_sinks, ATTUNE_D_SINKS) &&
              is_named(attune::Operand::seqused_q, ATTUNE_SEQUSED_Q) &&
              is_named(attune::Operand::seqused_kv, ATTUNE_SEQUSED_KV) &&
              is_named(attune::Operand::alibi_slopes, ATTUNE_ALIBI_SLOPES) &&
              is_named(attune::Operand::bias, ATTUNE_BIAS) &&
              is_named(attune::Operand::attention_mask, ATTUNE_ATTENTION_MASK) &&
              is_named(attune::Operand::d_bias, ATTUNE_D_BIAS) &&
              is_named(attune::Operand::cu_seqlens_q, ATTUNE_CU_SEQLENS_Q) &&
              is_named(attune::Operand::cu_seqlens_kv, ATTUNE_CU_SEQLENS_KV) &&
              is_named(attune::Operand::dropout_state, ATTUNE_DROPOUT_STATE) && attune::kOperandCount == 21);

static_assert(ATTUNE_VERSION_MAJOR == ATTUNE_PROJECT_MAJOR && ATTUNE_VERSION_MINOR == ATTUNE_PROJECT_MINOR &&
                  ATTUNE_VERSION_PATCH == ATTUNE_PROJECT_PATCH,
              "attune.h has the version of the project in CMakeLists.txt");

static_assert(static_cast<int>(attune::LogLevel::debug) == ATTUNE_LOG_DEBUG &&
                  static_cast<int>(attune::LogLevel::info) == ATTUNE_LOG_INFO &&
                  static_cast<int>(attune::LogLevel::warning) == ATTUNE_LOG_WARNING,
              "levels are those of C++");

constexpr int kMaxDevice = 1 << 16;

// The text of the thread's last error. Emptied memory must not hide an error: then there is only a constant.
struct LastError {
  std::string text;
  bool lost = false;
};
thread_local LastError last_error;

void keep_error(const char* text) noexcept {
  try {
    last_error.text = text;
    last_error.lost = false;
  } catch (...) {
    last_error.lost = true;
  }
}

// Runs a call; no exception leaves it.
template <typename Call>
attune_status guarded(const Call& call) noexcept {
  try {
    call();
    return ATTUNE_OK;
  } catch (const Error& error) {
    keep_error(error.what());
    return static_cast<attune_status>(-static_cast<int>(error.code()));
  } catch (const std::bad_alloc&) {
    keep_error("no memory is left on the host");
  } catch (const std::exception& error) {
    keep_error(error.what());
  } catch (...) {
    keep_error("an exception of unknown type");
  }
  return ATTUNE_ERROR_INTERNAL;
}

[[noreturn]] void refuse(const std::string& text) { throw Error(ErrorCode::invalid_argument, text); }

void require(const void* pointer, const char* name) {
  if (pointer == nullptr) refuse(std::string(name) + " is a null pointer");
}

// A struct of the caller's header, which has one of the sizes that it ever had: fields that an older one lacks are 0.
template <typename Struct>
Struct read_struct(const Struct* from, std::initializer_list<std::size_t> sizes, const char* name) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  require(from, name);
  const std::size_t size = from->struct_size;
  const std::string library = "libattune " + std::string(attune::attune_version());
  if (size > sizeof(Struct)) {
    throw Error(ErrorCode::unsupported,
                std::string(name) + ".struct_size is " + std::to_string(size) + ", but " + library +
                    " knows an attune_" + name + " of " + std::to_string(sizeof(Struct)) +
                    " bytes, as attune.h up to that version has it: update the library if the program was compiled "
                    "with a newer attune.h, else set struct_size to sizeof(attune_" +
                    name + ")");
  }
  if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) {
    refuse(std::string(name) + ".struct_size is " + std::to_string(size) + ", which no attune.h up to that of " +
           library + " has: set it to sizeof(attune_" + name + "), which is " + std::to_string(sizeof(Struct)) +
           " there");
  }
  Struct read{};
  std::memcpy(&read, from, size);
  return read;
}

attune::DataType dtype_of(std::int32_t dtype) {
  switch (dtype) {
    case ATTUNE_FP16:
      return attune::DataType::fp16;
    case ATTUNE_BF16:
      return attune::DataType::bf16;
  }
  refuse("dtype " + std::to_string(dtype) + " is unknown: ATTUNE_FP16 or ATTUNE_BF16");
}

attune::Pass pass_of(std::int32_t pass) {
  switch (pass) {
    case ATTUNE_FORWARD:
      return attune::Pass::forward;
    case ATTUNE_BACKWARD:
      return attune::Pass::backward;
  }
  refuse("pass " + std::to_string(pass) + " is unknown: ATTUNE_FORWARD or ATTUNE_BACKWARD");
}

attune::Layout layout_of(std::int32_t layout) {
  switch (layout) {
    case ATTUNE_LAYOUT_BSHD:
      return attune::Layout::bshd;
    case ATTUNE_LAYOUT_BHSD:
      return attune::Layout::bhsd;
  }
  refuse("layout " + std::to_string(layout) + " is unknown: ATTUNE_LAYOUT_BSHD or ATTUNE_LAYOUT_BHSD");
}

// The lengths of `problem` are set.
void set_mask(const attune_problem& from, AttentionProblem* problem) {
  switch (from.mask) {
    case ATTUNE_MASK_WINDOW:
      attune::apply_window(from.window_left, from.window_right, attune::bottom_right_offset(*problem), problem);
      return;
    case ATTUNE_MASK_NONE:
      return;
    case ATTUNE_MASK_CAUSAL:
      problem->mask_offset = attune::bottom_right_offset(*problem);
      break;
    case ATTUNE_MASK_CAUSAL_TOP_LEFT:
      break;
    case ATTUNE_MASK_CAUSAL_OFFSET:
      problem->mask_offset = from.mask_offset;
      break;
    default:
      refuse("mask " + std::to_string(from.mask) +
             " is unknown: one of ATTUNE_MASK_NONE, _CAUSAL, _CAUSAL_TOP_LEFT, _CAUSAL_OFFSET, _WINDOW");
  }
  problem->mask = attune::MaskKind::causal;
}

bool flag_of(const char* name, std::int32_t value) {
  if (value != 0 && value != 1) refuse(std::string(name) + " " + std::to_string(value) + ": it must be 0 or 1");
  return value == 1;
}

attune::PairTensor pair_tensor_of(const char* name, std::int32_t dimensions) {
  constexpr std::int32_t kOthers = ATTUNE_PAIRS_BATCH | ATTUNE_PAIRS_HEADS | ATTUNE_PAIRS_QUERIES;
  if (dimensions == 0) return attune::PairTensor::none;
  if ((dimensions & ATTUNE_PAIRS) == 0 || (dimensions & ~(ATTUNE_PAIRS | kOthers)) != 0) {
    refuse(std::string(name) + " " + std::to_string(dimensions) +
           ": it must be 0, or ATTUNE_PAIRS and those of ATTUNE_PAIRS_BATCH, _HEADS and _QUERIES that it has");
  }
  const auto has = [&](std::int32_t dimension) { return (dimensions & dimension) != 0; };
  return attune::pair_tensor(
      {.batch = has(ATTUNE_PAIRS_BATCH), .heads = has(ATTUNE_PAIRS_HEADS), .queries = has(ATTUNE_PAIRS_QUERIES)});
}

void require_device(std::int32_t device) {
  if (device < 0 || device > kMaxDevice)
    refuse("device " + std::to_string(device) + ": 0 for the current one, or an ordinal plus 1");
}

// The caller's problem and the device that it names. The runtime validates its numbers. `launched` is the pass of a
// function that launches; the others ask about the problem's.
struct Request {
  AttentionProblem problem;
  attune::DropoutSeed dropout;
  int device;

  explicit Request(const attune_problem* given, std::optional<attune::Pass> launched = std::nullopt) {
    const attune_problem from = read_struct(given, kProblemSizes, "problem");
    problem.pass = launched.value_or(pass_of(from.pass));
    problem.dtype = dtype_of(from.dtype);
    problem.batch = from.batch;
    problem.heads_q = from.heads_q;
    problem.heads_kv = from.heads_kv == 0 ? from.heads_q : from.heads_kv;
    problem.seq_q = from.seq_q;
    problem.seq_kv = from.seq_kv == 0 ? from.seq_q : from.seq_kv;
    problem.head_dim = from.head_dim;
    set_mask(from, &problem);
    if (from.softmax_scale == 0 && std::signbit(from.softmax_scale)) {
      refuse("softmax_scale -0: must be positive and finite as a float, or 0 for 1/sqrt(head_dim)");
    }
    problem.softmax_scale = from.softmax_scale == 0 && from.head_dim > 0 ? attune::default_softmax_scale(from.head_dim)
                                                                         : from.softmax_scale;
    problem.layout = layout_of(from.layout);
    problem.alignment = from.alignment == 0 ? 16 : from.alignment;
    problem.deterministic = flag_of("deterministic", from.deterministic) && problem.pass == attune::Pass::backward;
    problem.invariant = flag_of("invariant", from.invariant);
    problem.softcap = from.softcap;
    problem.sink = flag_of("sink", from.sink);
    problem.alibi = flag_of("alibi", from.alibi);
    problem.bias = pair_tensor_of("bias", from.bias);
    problem.bias_fp32 = flag_of("bias_fp32", from.bias_fp32);
    problem.attention_mask = pair_tensor_of("attention_mask", from.attention_mask);
    problem.bias_gradient = flag_of("bias_gradient", from.bias_gradient) && problem.pass == attune::Pass::backward;
    problem.packed = flag_of("packed", from.packed);
    problem.max_seq_q = from.max_seq_q;
    problem.max_seq_kv = from.max_seq_kv;
    problem.dropout = from.dropout;
    if (from.reserved != 0) refuse("reserved must be 0");
    dropout = {from.dropout_seed, from.dropout_offset};
    if (flag_of("used_lengths", from.used_lengths) || problem.packed) {
      const bool stays = from.mask == ATTUNE_MASK_CAUSAL_TOP_LEFT || from.mask == ATTUNE_MASK_CAUSAL_OFFSET;
      problem.lengths = stays ? attune::Lengths::used_top_left : attune::Lengths::used;
    }
    require_device(from.device);
    device = from.device;
  }
};

// Tuned configs come from the databases, if there are any: a library call creates no file in a home folder.
void use_databases_once() {
  // No call_once: what an exception leaves must be tried again by the next call, and libstdc++ cannot throw through
  // pthread_once() where it is linked statically.
  static constinit std::atomic<bool> used{false};
  static constinit attune::ActivityMutex using_them;
  if (used.load(std::memory_order_acquire)) return;
  const attune::ActivityMutex::Lock lock(using_them);
  if (used.load(std::memory_order_relaxed)) return;
  attune::use_tuned_configs();
  used.store(true, std::memory_order_release);
}

AttentionRuntime& runtime_on(int device) {
  use_databases_once();
  return device == 0 ? attune::current_runtime() : attune::runtime_of(device - 1);
}

AttentionRuntime& runtime_for(const Request& request) {
  // A problem that cannot be answered anywhere is refused for what it is, also where there is no GPU.
  attune::validate(request.problem);
  return runtime_on(request.device);
}

// Writes as much of a text as fits, with a terminating 0.
void write_text(const std::string& whole, char* text, std::size_t capacity, std::size_t* bytes) {
  if (bytes != nullptr) *bytes = whole.size() + 1;
  if (capacity == 0) return;
  const std::size_t written = whole.size() < capacity ? whole.size() : capacity - 1;
  std::memcpy(text, whole.data(), written);
  text[written] = 0;
}

void require_place(const char* text, std::size_t capacity) {
  if (text == nullptr && capacity != 0) refuse("text is a null pointer, but capacity is " + std::to_string(capacity));
}

attune::TensorView view_of(const attune_tensor& tensor) {
  return {tensor.data, tensor.stride_batch, tensor.stride_head, tensor.stride_row};
}

attune::Tensors tensors_of(const Request& request, const attune_operand* operands, std::size_t count) {
  if (operands == nullptr && count != 0) refuse("operands is a null pointer, but count is " + std::to_string(count));
  attune::Tensors tensors;
  tensors.dropout = request.dropout;
  std::uint32_t given = 0;  // a bit for each name
  for (std::size_t i = 0; i < count; ++i) {
    const attune_operand& operand = operands[i];
    const auto refuse_it = [&](const std::string& what) { refuse("operands[" + std::to_string(i) + "]" + what); };
    if (operand.name < 0 || operand.name >= static_cast<std::int32_t>(attune::kOperandCount)) {
      refuse_it(".name " + std::to_string(operand.name) + " is unknown: ATTUNE_Q (0) to ATTUNE_DROPOUT_STATE (" +
                std::to_string(attune::kOperandCount - 1) + ")");
    }
    if (operand.reserved != 0) refuse_it(".reserved must be 0");
    const auto name = static_cast<attune::Operand>(operand.name);
    const std::uint32_t bit = std::uint32_t{1} << operand.name;
    if ((given & bit) != 0) refuse_it(" is " + std::string(to_string(name)) + ", which was given before");
    given |= bit;
    tensors[name] = view_of(operand.tensor);
  }
  return tensors;
}

}  // namespace

const char* attune_version(void) {
  static constinit attune::LazyValue<const std::string> version;
  return version.get(attune::attune_version).c_str();
}

const char* attune_last_error(void) {
  return last_error.lost ? "an error whose text could not be kept: no memory is left on the host"
                         : last_error.text.c_str();
}

attune_status attune_set_log_callback(attune_log_callback callback, void* user, int32_t least_level) {
  return guarded([&] {
    if (callback == nullptr) return attune::set_log_sink({});
    if (least_level < ATTUNE_LOG_DEBUG || least_level > ATTUNE_LOG_WARNING) {
      refuse("least_level " + std::to_string(least_level) +
             " is unknown: ATTUNE_LOG_DEBUG, ATTUNE_LOG_INFO or ATTUNE_LOG_WARNING");
    }
    attune::set_log_sink(
        [callback, user](attune::LogLevel level, std::string_view message) {
          callback(static_cast<int32_t>(level), std::string(message).c_str(), user);
        },
        static_cast<attune::LogLevel>(least_level));
  });
}

attune_status attune_forward(const attune_problem* problem, const attune_operand* operands, size_t count,
                             void* workspace, size_t workspace_bytes, void* stream) {
  return guarded([&] {
    const Request request(problem, attune::Pass::forward);
    const attune::Tensors views = tensors_of(request, operands, count);
    runtime_for(request).forward(request.problem, views, workspace, workspace_bytes, stream);
  });
}

attune_status attune_backward(const attune_problem* problem, const attune_operand* operands, size_t count,
                              void* workspace, size_t workspace_bytes, void* stream) {
  return guarded([&] {
    const Request request(problem, attune::Pass::backward);
    const attune::Tensors views = tensors_of(request, operands, count);
    runtime_for(request).backward(request.problem, views, workspace, workspace_bytes, stream);
  });
}

attune_status attune_workspace_bytes(const attune_problem* problem, size_t* bytes) {
  return guarded([&] {
    require(bytes, "bytes");
    const Request request(problem);
    *bytes = runtime_for(request).workspace_bytes(request.problem);
  });
}

attune_status attune_unsupported(const attune_problem* problem, char* text, size_t capacity, size_t* bytes) {
  return guarded([&] {
    require_place(text, capacity);
    const Request request(problem);
    write_text(attune::unsupported(attune::simplest_mask(request.problem), runtime_on(request.device).device()->spec()),
               text, capacity, bytes);
  });
}

attune_status attune_describe(const attune_problem* problem, char* text, size_t capacity, size_t* bytes) {
  return guarded([&] {
    require_place(text, capacity);
    const Request request(problem);
    const auto prepared = runtime_for(request).prepare(request.problem);
    const attune::ConfigChoice& choice = prepared->choice;
    const std::string whole = canonical_text(choice.config) + "\n" + std::string(to_string(choice.origin)) + "\n" +
                              choice.detail + "\n" + choice.tune_command;
    write_text(whole, text, capacity, bytes);
  });
}

attune_status attune_prepare(const attune_problem* problem, const char* config, attune_prepared** prepared) {
  return guarded([&] {
    require(prepared, "prepared");
    *prepared = nullptr;
    const Request request(problem);
    std::optional<attune::KernelConfig> given;
    if (config != nullptr) given = attune::parse_config(config);
    AttentionRuntime& runtime = runtime_for(request);
    *prepared = new attune_prepared{&runtime, runtime.prepare(request.problem, given)};
  });
}

attune_status attune_launch(const attune_prepared* prepared, const attune_problem* problem,
                            const attune_operand* operands, size_t count, void* workspace, size_t workspace_bytes,
                            void* stream) {
  return guarded([&] {
    require(prepared, "prepared");
    const Request request(problem, attune::Pass::forward);
    const attune::Tensors views = tensors_of(request, operands, count);
    prepared->runtime->launch(*prepared->kernels, request.problem, views, workspace, workspace_bytes, stream);
  });
}

attune_status attune_launch_backward(const attune_prepared* prepared, const attune_problem* problem,
                                     const attune_operand* operands, size_t count, void* workspace,
                                     size_t workspace_bytes, void* stream) {
  return guarded([&] {
    require(prepared, "prepared");
    const Request request(problem, attune::Pass::backward);
    const attune::Tensors views = tensors_of(request, operands, count);
    prepared->runtime->launch(*prepared->kernels, request.problem, views, workspace, workspace_bytes, stream);
  });
}

attune_status attune_load_pack(const char* path) {
  return guarded([&] {
    require(path, "path");
    attune::load_pack(path);
  });
}

attune_status attune_digest(int32_t device, char* text, size_t capacity, size_t* bytes) {
  return guarded([&] {
    require_place(text, capacity);
    require_device(device);
    write_text(attune::picks_digest(runtime_on(device).device()->spec()), text, capacity, bytes);
  });
}

attune_status attune_machine(char* text, size_t capacity, size_t* bytes) {
  return guarded([&] {
    require_place(text, capacity);
    std::string lines;
    for (const attune::Finding& finding : attune::find_on_this_machine()) {
      std::string said = finding.text();
      std::replace(said.begin(), said.end(), '\n', ' ');
      lines += (lines.empty() ? "" : "\n") + finding.name + "\t" + said;
    }
    write_text(lines, text, capacity, bytes);
  });
}

void attune_release(attune_prepared* prepared) {
  guarded([&] { delete prepared; });
}
