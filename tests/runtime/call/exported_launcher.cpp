// The launcher of an export packs, sizes and zeroes what the runtime does: exported launchers are compiled for the host
// with a CUDA runtime that writes down what it is asked for, and compared with the plans that they were made from.
#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <random>

#include "attune/attention.h"
#include "generator/export/exported_plan.h"
#include "generator/generate.h"
#include "runtime/call/argument_packer.h"
#include "runtime/emulator/loaded_object.h"
#include "runtime/system/child_program.h"
#include "tests/catch.h"
#include "tests/runtime/fake_device.h"
#include "tests/temporary_folder.h"

using namespace attune;
using namespace attune::testing;

namespace {

// The CUDA runtime and driver of the compiled launchers. A function's address is its number + 1.
constexpr const char* kFakeCuda = R"(
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cstring>
#include <vector>

struct Record {
  int kind;  // 0: memset, 1: launch
  unsigned long long address, bytes, stream;
  unsigned number, grid, threads, shared, cluster, programmatic, other_dims;
  unsigned char arguments[1536];  // as many as PackedArguments holds
};
static std::vector<Record> records;
static const unsigned* argument_bytes;

extern "C" void fake_expect(const unsigned* bytes) { argument_bytes = bytes; records.clear(); }
extern "C" unsigned fake_count() { return static_cast<unsigned>(records.size()); }
extern "C" const Record* fake_records() { return records.data(); }

static CUresult launch(const CUlaunchConfig* config, CUfunction function, void** parameters, void**) {
  Record record = {};
  record.kind = 1;
  record.number = static_cast<unsigned>(reinterpret_cast<unsigned long long>(function) - 1);
  record.grid = config->gridDimX;
  record.threads = config->blockDimX;
  record.shared = config->sharedMemBytes;
  record.stream = reinterpret_cast<unsigned long long>(config->hStream);
  record.other_dims = config->gridDimY * config->gridDimZ * config->blockDimY * config->blockDimZ;
  record.cluster = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      record.cluster = attribute.value.clusterDim.x * attribute.value.clusterDim.y * attribute.value.clusterDim.z;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      record.programmatic = static_cast<unsigned>(attribute.value.programmaticStreamSerializationAllowed);
  }
  std::memcpy(record.arguments, parameters[0], argument_bytes[record.number]);
  records.push_back(record);
  return CUDA_SUCCESS;
}
static CUresult set_attribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
static CUresult encode(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* address, const cuuint64_t* dims,
                       const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t*, CUtensorMapInterleave,
                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  const int swizzle_bytes = swizzle == CU_TENSOR_MAP_SWIZZLE_128B  ? 128
                            : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64
                            : swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? 32
                                                                   : 0;
  if (rank != 4 && rank != 5) return CUDA_ERROR_INVALID_VALUE;
  std::memset(map, 0, sizeof(*map));
  char* to = reinterpret_cast<char*>(map);
  std::memcpy(to, &address, 8);
  std::memcpy(to + 8, dims, 8 * rank);
  std::memcpy(to + 48, strides, 8 * (rank - 1));
  std::memcpy(to + 80, box, 4 * rank);
  std::memcpy(to + 100, &swizzle_bytes, 4);
  return CUDA_SUCCESS;
}
static cudaError_t find(const char* name, void** function, cudaDriverEntryPointQueryResult* result) {
  *result = cudaDriverEntryPointSuccess;
  *function = std::strcmp(name, "cuLaunchKernelEx") == 0         ? reinterpret_cast<void*>(&launch)
              : std::strcmp(name, "cuFuncSetAttribute") == 0     ? reinterpret_cast<void*>(&set_attribute)
              : std::strcmp(name, "cuTensorMapEncodeTiled") == 0 ? reinterpret_cast<void*>(&encode)
                                                                 : nullptr;
  return *function != nullptr ? cudaSuccess : cudaErrorSymbolNotFound;
}
static int compute_major = 9, compute_minor = 0;
extern "C" void fake_device(int major, int minor) { compute_major = major; compute_minor = minor; }

extern "C" {
#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) { return find(name, function, result); }
#else
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* result) { return find(name, function, result); }
#endif
cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* symbol) {
  *function = reinterpret_cast<cudaFunction_t>(const_cast<void*>(symbol));
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  Record record = {};
  record.address = reinterpret_cast<unsigned long long>(to);
  record.bytes = bytes;
  record.number = static_cast<unsigned>(value);
  record.stream = reinterpret_cast<unsigned long long>(stream);
  records.push_back(record);
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? compute_major : compute_minor;
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "fake"; }
const char* cudaGetErrorName(cudaError_t) { return "fake"; }
}

// What a test asks of a launcher, whatever its arguments are named.
struct Asked {
  long long batch, heads_q, heads_kv, seq_q, seq_kv, first_offset, mask_offset;
  float softmax_scale;
  void* data[21];
  long long strides[21][3];
  void* workspace;
  unsigned long long workspace_bytes, stream;
};
)";

// The same structs on this side.
struct Record {
  int kind;
  unsigned long long address, bytes, stream;
  unsigned number, grid, threads, shared, cluster, programmatic, other_dims;
  unsigned char arguments[1536];  // as many as PackedArguments holds
};
struct Asked {
  long long batch, heads_q, heads_kv, seq_q, seq_kv, first_offset, mask_offset;
  float softmax_scale;
  void* data[21];
  long long strides[21][3];
  void* workspace;
  unsigned long long workspace_bytes, stream;
};
static_assert(kOperandCount == 21);

struct Exported {
  const char* problem;
  const char* config;
  const char* target;
};

// Calls a launcher, or asks it for its workspace, by the names that it has.
std::string shim_of(const KernelPlan& plan, const std::string& name) {
  std::string text =
      fmt::format("#include \"{0}/launch.cpp\"\nstatic {0}_call call_of_{0}(const Asked& asked) {{\n", name);
  text += fmt::format("  {0}_call call;\n  {0}_problem(&call);\n", name);
  std::vector<std::string> words = {"batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "softmax_scale"};
  if (plan.problem.mask == MaskKind::window) words.push_back("first_offset");
  if (plan.problem.mask != MaskKind::none) words.push_back("mask_offset");
  for (const std::string& word : words) text += fmt::format("  call.{0} = asked.{0};\n", word);
  if (plan.problem.dropout != 0) text += "  call.dropout_seed = 7;\n  call.dropout_offset = 1ull << 40;\n";
  for (const OperandList& operands : {inputs_of(plan.problem), outputs_of(plan.problem)}) {
    for (const Operand operand : operands) {
      const auto id = identifier(operand);
      const auto number = static_cast<int>(operand);
      text += fmt::format("  call.{0} = static_cast<decltype(call.{0})>(asked.data[{1}]);\n", id, number);
      if (!has_strides(operand)) continue;
      for (const auto& [dimension, index] : {std::pair{"batch", 0}, std::pair{"head", 1}, std::pair{"row", 2}}) {
        if (index == 2 && !has_whole_rows(operand) && !is_of_pairs(operand)) continue;
        text += fmt::format("  call.{0}_stride_{1} = asked.strides[{2}][{3}];\n", id, dimension, number, index);
      }
    }
  }
  text += "  call.workspace = asked.workspace;\n  call.workspace_bytes = asked.workspace_bytes;\n  return call;\n}\n";
  text += fmt::format(
      "extern \"C\" const void* {0}_kernel(int number) {{ return reinterpret_cast<const void*>(static_cast<unsigned "
      "long "
      "long>(number) + 1); }}\n"
      "extern \"C\" int shim_{0}(const Asked* asked) {{ const {0}_call call = call_of_{0}(*asked); return {0}(&call, "
      "reinterpret_cast<cudaStream_t>(asked->stream)); }}\n"
      "extern \"C\" unsigned long long workspace_{0}(const Asked* asked) {{ const {0}_call call = call_of_{0}(*asked); "
      "return {0}_workspace_bytes(&call); }}\n",
      name);
  return text;
}

// Launchers of several exports in one object, as in a program that holds them all.
class Launchers {
 public:
  explicit Launchers(const std::vector<Exported>& exports) {
    std::string text = kFakeCuda;
    for (const Exported& each : exports) {
      const DeviceSpec& device = find_device(each.target);
      plans.push_back(generate(parse_problem(each.problem), parse_config(each.config), device));
      names.push_back(fmt::format("export_{}", names.size()));
      std::filesystem::create_directory(folder_ / names.back());
      for (const ExportedFile& file : export_plan(plans.back(), device, {names.back(), "test", ""}))
        std::ofstream(folder_ / (names.back() + "/" + file.name)) << file.text;
      text += shim_of(plans.back(), names.back());
    }
    std::ofstream(folder_ / "all.cpp") << text;
    const char* named = std::getenv("ATTUNE_HOST_COMPILER");
    const auto compiler = find_program(named != nullptr ? named : "c++");
    REQUIRE(compiler);
    std::vector<std::string> arguments = {
        "-std=c++17", "-shared", "-fPIC", "-Wall", "-Wextra", "-o", folder_.file("so"), folder_.file("all.cpp")};
    for (const std::string include : {ATTUNE_CUDA_INCLUDES}) arguments.push_back("-I" + include);
    const ChildProgramResult compiled = run_program(*compiler, arguments, ChildOutput::both, 20000);
    INFO(compiled.output);
    REQUIRE(compiled.status == 0);
    CHECK(compiled.output.empty());  // nor a warning
    std::ifstream file(folder_ / "so", std::ios::binary);
    object_ = std::make_unique<LoadedObject>(std::string(std::istreambuf_iterator<char>(file), {}));
    INFO(object_->why_not());
    REQUIRE(object_->why_not().empty());
  }

  template <typename Function>
  Function* find(const std::string& symbol) const {
    auto* found = reinterpret_cast<Function*>(object_->find(symbol.c_str()));
    INFO(symbol);
    REQUIRE(found != nullptr);
    return found;
  }

  std::vector<KernelPlan> plans;
  std::vector<std::string> names;

 private:
  TemporaryFolder folder_;
  std::unique_ptr<LoadedObject> object_;
};

class Random {
 public:
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool coin() { return between(0, 1) == 1; }

 private:
  std::mt19937_64 engine_{7};
};

// Another problem of a plan's kernel class, now and then one that its config does not fit.
AttentionProblem varied(const KernelPlan& plan, Random& random) {
  AttentionProblem problem = plan.problem;
  const std::int64_t group = problem.heads_q / problem.heads_kv,
                     step = plan.config.even_tiles && random.between(0, 3) != 0 ? 256 : 1;
  problem.batch = random.between(1, 3);
  problem.heads_kv = random.between(1, 5);
  problem.heads_q = problem.heads_kv * (random.between(0, 3) == 0 ? random.between(1, 4) : group);
  problem.seq_q = random.between(0, 4) == 0 ? step : step * random.between(1, 5000 / step);
  problem.seq_kv = step * random.between(1, 20000 / step);
  problem.softmax_scale = static_cast<float>(random.between(1, 1000)) / 777.0f;
  problem.layout = random.coin() ? Layout::bshd : Layout::bhsd;
  if (problem.mask == MaskKind::causal)
    problem.mask_offset = random.coin() ? problem.seq_kv - problem.seq_q : random.between(-6000, 6000);
  if (problem.mask == MaskKind::window) {
    problem.first_offset = random.between(-6000, 6000);
    problem.mask_offset = random.coin() ? kOpenDiagonal : problem.first_offset + random.between(0, 3000);
  }
  return problem;
}

// Tensors at made-up addresses: packed, or with gaps that keep rows aligned.
Tensors made_up_tensors(const AttentionProblem& problem, Random& random) {
  Tensors tensors;
  tensors.dropout = {7, std::uint64_t{1} << 40};
  std::uintptr_t address = 0x10000;
  for (const Operand operand : kOperands) {
    address += 0x1000;
    if (!has_strides(operand)) {
      const bool absent = operand == Operand::d_lse || operand == Operand::seqused_kv ||
                          operand == Operand::dropout_state ||
                          (operand == Operand::lse && problem.pass == Pass::forward);
      tensors[operand].data = absent && random.coin() ? nullptr : reinterpret_cast<void*>(address);
      continue;
    }
    TensorView view = packed_view(problem, operand, reinterpret_cast<void*>(address));
    if (is_of_pairs(operand)) {  // a stride of 0 says that it repeats; others may be any, and the address, too
      if (random.coin()) view.data = reinterpret_cast<void*>(address + 4 * random.between(1, 3));
      if (random.coin() && view.stride_row != 0) view.stride_row += random.between(1, 8);
      if (random.coin() && view.stride_head != 0) view.stride_head += 8 * random.between(1, 100);
      if (random.coin() && view.stride_batch != 0) view.stride_batch = -view.stride_batch;
    } else if (random.coin()) {
      view.stride_batch += 8 * random.between(0, 100);
      view.stride_head *= random.between(1, 3);
      view.stride_row *= random.between(1, 3);
    }
    if (operand_shape(problem, operand).rows == 1 && !is_of_pairs(operand) && random.coin())
      view.stride_row = 13;  // says nothing
    tensors[operand] = view;
  }
  return tensors;
}

Asked asked_of(const AttentionProblem& problem, const Tensors& tensors, std::size_t workspace_bytes) {
  Asked asked = {};
  asked.batch = problem.batch;
  asked.heads_q = problem.heads_q;
  asked.heads_kv = problem.heads_kv;
  asked.seq_q = problem.seq_q;
  asked.seq_kv = problem.seq_kv;
  asked.first_offset = problem.first_offset;
  asked.mask_offset = problem.mask_offset;
  asked.softmax_scale = problem.softmax_scale;
  for (const Operand operand : kOperands) {
    const auto number = static_cast<std::size_t>(operand);
    const TensorView& view = tensors[operand];
    asked.data[number] = const_cast<void*>(view.data);
    asked.strides[number][0] = view.stride_batch;
    asked.strides[number][1] = view.stride_head;
    asked.strides[number][2] = view.stride_row;
  }
  asked.workspace = workspace_bytes != 0 ? reinterpret_cast<void*>(0x7f0000) : nullptr;
  asked.workspace_bytes = workspace_bytes;
  asked.stream = 0x55;
  return asked;
}

// What the launcher enqueued is what the plan says.
void compare_records(const KernelPlan& plan, const AttentionProblem& problem, const Tensors& tensors,
                     const Asked& asked, const Device& device, const Record* records, unsigned count) {
  const std::size_t zeroed = plan.zeroed_bytes_of(problem);
  REQUIRE(count == plan.launches.size() + (zeroed != 0 ? 1 : 0));
  const auto workspace = reinterpret_cast<DevicePointer>(asked.workspace);
  if (zeroed != 0) {
    CHECK(records->kind == 0);
    CHECK(records->address == workspace);
    CHECK(records->bytes == zeroed);
    CHECK(records->number == 0);
    CHECK(records->stream == asked.stream);
    ++records;
  }
  const ArgumentValues values = workspace_values(plan, problem, workspace);
  for (std::size_t i = 0; i < plan.launches.size(); ++i) {
    const KernelLaunch& launch = plan.launches[i];
    const Record& record = records[i];
    INFO(launch.entry);
    CHECK(record.kind == 1);
    CHECK(record.number == i);
    CHECK(record.grid == launch.grid_x(problem));
    CHECK(record.threads == static_cast<unsigned>(launch.threads));
    CHECK(record.other_dims == 1);
    CHECK(record.shared == launch.shared_bytes);
    CHECK(record.cluster == static_cast<unsigned>(launch.cluster));
    CHECK(record.programmatic == (launch.programmatic_launch ? 1 : 0));
    CHECK(record.stream == asked.stream);
    PackedArguments packed;
    packed.data.fill(std::byte{0});
    pack_arguments(launch, problem, tensors, values, device, packed);
    for (std::size_t field = 0; field < launch.arguments.fields.size(); ++field) {
      const std::size_t offset = launch.arguments.offsets[field], bytes = size_of(launch.arguments.fields[field]);
      INFO(to_string(launch.arguments.fields[field]));
      CHECK(std::memcmp(record.arguments + offset, packed.data.data() + offset, bytes) == 0);
    }
  }
}

void compare_with_plans(const std::vector<Exported>& exports) {
  const Launchers launchers(exports);
  const auto expect = launchers.find<void(const unsigned*)>("fake_expect");
  const auto count = launchers.find<unsigned()>("fake_count");
  const auto records = launchers.find<const Record*()>("fake_records");
  Random random;
  for (std::size_t i = 0; i < launchers.plans.size(); ++i) {
    const KernelPlan& plan = launchers.plans[i];
    const std::string& name = launchers.names[i];
    const DeviceSpec& spec = find_device(exports[i].target);
    launchers.find<void(int, int)>("fake_device")(spec.compute_major, spec.compute_minor);
    const FakeDevice device(spec);
    std::vector<unsigned> argument_bytes;
    for (const KernelLaunch& launch : plan.launches)
      argument_bytes.push_back(static_cast<unsigned>(launch.arguments.bytes));
    const auto call = launchers.find<int(const Asked*)>("shim_" + name);
    const auto workspace_bytes = launchers.find<unsigned long long(const Asked*)>("workspace_" + name);
    const auto message = launchers.find<const char*()>(name + "_message");

    int accepted = 0, refused = 0;
    for (int round = 0; round < 60; ++round) {
      const AttentionProblem problem = round == 0 ? plan.problem : varied(plan, random);
      INFO(canonical_text(problem) << " with " << canonical_text(plan.config));
      const Tensors tensors = made_up_tensors(problem, random);
      // What the config takes decides which sizes are served. An export has room for any number of rows of partial
      // results.
      const std::vector<std::string> reasons = infeasibility(problem, plan.config, spec);
      const bool many_rows = !reasons.empty() && reasons[0].find("rows of partial results") != std::string::npos;
      const bool same_group = problem.heads_q / problem.heads_kv == plan.problem.heads_q / plan.problem.heads_kv;
      const bool takes = (reasons.empty() || many_rows) && (same_group || !plan.config.pack_gqa);
      const std::size_t needed = takes ? plan.workspace_bytes_of(problem) : 0;
      const Asked asked = asked_of(problem, tensors, needed);
      expect(argument_bytes.data());
      CHECK(workspace_bytes(&asked) == needed);
      const int status = call(&asked);
      INFO(message());
      CHECK((status == 0) == takes);
      ++(takes ? accepted : refused);
      if (!takes) {
        CHECK(count() == 0);
        CHECK(std::strlen(message()) > 20);
        continue;
      }
      CHECK(std::string(message()).empty());
      compare_records(plan, problem, tensors, asked, device, records(), count());
    }
    CHECK(accepted > 20);
    CHECK((refused > 0) == (plan.config.even_tiles || plan.config.pack_gqa || plan.config.kv_grad_per_query_head));
  }
}

}  // namespace

TEST_CASE("an exported launcher does what the plan says", "[nogpu]") {
  compare_with_plans({
      {"forward bf16 hq4 sq512 d64 causal", "sm80 q64 kv64 w4 st2 order=l2-sections-reversed parts=fill", "a100"},
      {"forward bf16 hq8 sq4096 d128", "sm80 q128 kv64 w8 st2 even-tiles", "a100"},
      {"forward bf16 hq8 sq4096 d256 causal",
       "sm90 q128 kv80 st2 order=tile-major-reversed rescale10 overlap=within scheduler=dynamic-persistent vst1 "
       "cluster2",
       "h200"},
      {"forward bf16 b4 hq32 hkv8 sq4 skv8192 d128 causal",
       "sm90 q64 kv128 st2 rescale10 overlap=within pack-gqa parts=fill", "h200"},
      {"forward bf16 b4 hq32 hkv8 sq4 skv8192 d128 causal", "sm80 q16 kv32 w1 st2 rescale10 pack-gqa parts=fill",
       "a100"},
      {"forward bf16 b4 hq32 hkv8 sq4 skv8192 d128 causal used",
       "sm90 q64 kv128 st2 rescale10 overlap=within pack-gqa parts=fill", "h200"},
      {"forward bf16 hq16 sq4096 d64 causal used-top-left", "sm80 q128 kv64 w8 st2", "a100"},
      {"backward fp16 hq4 sq4096 d64 window=100,20 used sink", "sm90 q64 kv64 st2 dq=atomic", "h200"},
      {"forward bf16 hq16 sq4096 d128 window=512,100",
       "sm90 q128 kv64 st2 rescale10 qst2 overlap=across scheduler=static-persistent", "h200"},
      {"forward fp16 sq300 skv1000 d72 align2", "sm80 q64 kv48 w4 st2 parts4", "a100"},
      {"forward bf16 hq8 hkv2 sq4 skv3000 d64 causal softcap30 sink", "sm90 q64 kv64 st2 parts3 pack-gqa", "h200"},
      {"forward fp16 hq2 sq300 skv1000 d64 sink", "sm80 q64 kv48 w4 st2", "a100"},
      {"forward bf16 b2 hq4 hkv2 sq300 skv1000 d64 alibi", "sm90 q128 kv64 st2 overlap=within", "h200"},
      {"forward bf16 b2 hq4 hkv2 sq512 d64 causal bias=1hqk attention-mask=b1qk",
       "sm90 q128 kv64 st2 overlap=within pst1", "h200"},
      {"forward fp16 b2 hq4 sq300 skv1000 d64 bias=b11k bias-fp32 used", "sm90 q128 kv64 st2 overlap=within pst2",
       "h200"},
      {"forward bf16 b2 hq4 sq512 d64 attention-mask=bhqk", "sm90 q128 kv64 st2 overlap=within pst1 visible-blocks",
       "h200"},
      {"forward bf16 hq4 sq512 d64 attention-mask=b11k bias=bhqk", "sm80 q64 kv64 w4 st2", "a100"},
      {"forward bf16 b2 hq4 sq512 d64 causal dropout0.1", "sm90 q128 kv64 st2 overlap=within", "h200"},
      {"forward bf16 b2 hq4 sq20 skv3000 d64 dropout0.01 used sink", "sm80 q16 kv32 w1 st2 parts3", "a100"},
      {"backward bf16 b2 hq4 hkv2 sq512 d64 dropout0.1", "sm90 q64 kv128 st2 dq=atomic kv-grad-per-query-head", "h200"},
      {"backward bf16 b2 hq4 sq512 d64 causal dropout0.01 bias=11qk bias-gradient", "sm80 q32 kv32 w2 st2", "a100"},
      {"backward bf16 b2 hq4 hkv2 sq512 d64 bias=1hqk bias-gradient",
       "sm90 q64 kv128 st2 overlap=within pst2 dq=atomic", "h200"},
      {"backward bf16 b2 hq4 hkv2 sq512 d64 bias=bhqk bias-gradient",
       "sm90 q64 kv128 st2 overlap=within pst2 dq=atomic fused-dbias", "h200"},
      {"backward fp16 b2 hq4 sq512 d64 bias=b11k bias-gradient attention-mask=11qk", "sm80 q64 kv64 w4 st2", "a100"},
      {"backward bf16 b2 hq4 sq512 d128 attention-mask=b1qk",
       "sm90 q64 kv128 st2 overlap=within pst2 dq=atomic visible-blocks", "h200"},
      {"backward bf16 b2 hq4 sq512 d64 causal alibi softcap20", "sm80 q64 kv64 w4 st2", "a100"},
      {"backward bf16 b2 hq4 sq512 d64 causal softcap20 sink", "sm90 q64 kv128 st2 dq=atomic", "h200"},
      {"backward fp16 hq4 hkv2 sq512 d64 deterministic sink", "sm80 q64 kv64 w4 st1 dq=ordered", "a100"},
      {"backward bf16 hq4 hkv2 sq512 d64 causal", "sm80 q64 kv64 w4 st2 order=l2-sections kv-grad-per-query-head",
       "h200"},
      {"backward fp16 hq4 sq512 d64 causal deterministic", "sm80 q64 kv64 w4 st1 dq=ordered", "a100"},
      {"backward bf16 hq16 sq4096 d128 causal", "sm90 q64 kv128 st3 order=l2-sections ordered overlap=within dq=atomic",
       "h200"},
      {"backward fp16 hq8 hkv2 sq1000 d72 window=300,50 deterministic",
       "sm90 q64 kv128 st2 ordered kv-grad-per-query-head dq=ordered dost1", "h200"},
      {"backward bf16 hq4 sq4000 skv100 d64 causal",
       "sm90 q64 kv64 st2 order=l2-sections scheduler=static-persistent query-parts5 dq=atomic", "h200"},
  });
}

TEST_CASE("an exported launcher refuses what it cannot run, and says why", "[nogpu]") {
  const Launchers launchers({{"forward bf16 hq4 sq512 d64 causal", "sm80 q64 kv64 w4 st2 parts4", "a100"},
                             {"backward bf16 hq4 sq512 d64", "sm90 q64 kv128 st3 overlap=within dq=atomic", "h200"},
                             {"forward bf16 hq4 sq512 d64 bias=1hqk", "sm80 q64 kv64 w4 st2", "a100"}});
  const unsigned argument_bytes[8] = {};
  launchers.find<void(const unsigned*)>("fake_expect")(argument_bytes);
  const auto set_device = launchers.find<void(int, int)>("fake_device");
  Random random;
  const auto refusal = [&](std::size_t number, const auto& change) {
    const KernelPlan& plan = launchers.plans[number];
    Tensors tensors = made_up_tensors(plan.problem, random);
    for (const Operand operand : kOperands) {
      if (!has_strides(operand)) tensors[operand].data = reinterpret_cast<void*>(0x9000);
    }
    Asked asked = asked_of(plan.problem, tensors, plan.workspace_bytes_of(plan.problem));
    change(asked);
    const int status = launchers.find<int(const Asked*)>("shim_" + launchers.names[number])(&asked);
    CHECK(status != 0);
    return std::string(launchers.find<const char*()>(launchers.names[number] + "_message")());
  };
  const auto at = [](Operand operand) { return static_cast<std::size_t>(operand); };
  set_device(8, 0);
  CHECK(refusal(0, [](Asked& asked) { asked.seq_q = 0; }) == "seq_q is 0: must be at least 1 and below 2147482624");
  CHECK(refusal(0, [](Asked& asked) { asked.heads_kv = 3; }) ==
        "heads_q is 4: must be a multiple of heads_kv, which is 3");
  CHECK_THAT(refusal(0, [](Asked& asked) { asked.batch = asked.heads_q = 1 << 17; }),
             ContainsSubstring("split the batch"));
  CHECK_THAT(refusal(0, [](Asked& asked) { asked.softmax_scale = -1; }), ContainsSubstring("softmax_scale is -1"));
  CHECK_THAT(refusal(0, [](Asked& asked) { asked.mask_offset = kOpenDiagonal; }), ContainsSubstring("within 32 bits"));
  CHECK(refusal(0, [&](Asked& asked) { asked.data[at(Operand::k)] = nullptr; }) == "k is null");
  CHECK(refusal(0, [&](Asked& asked) { asked.data[at(Operand::o)] = reinterpret_cast<void*>(0x1008); }) ==
        "o starts at an address that is no multiple of 16 bytes");
  CHECK_THAT(refusal(0, [&](Asked& asked) { asked.strides[at(Operand::q)][2] = 65; }),
             ContainsSubstring("q_stride_row is 65: must be a multiple of 8 elements"));
  CHECK_THAT(refusal(0, [&](Asked& asked) { asked.strides[at(Operand::v)][1] = -64; }),
             ContainsSubstring("v_stride_head is -64"));
  CHECK_THAT(refusal(0, [&](Asked& asked) { asked.data[at(Operand::lse)] = reinterpret_cast<void*>(0x1002); }),
             ContainsSubstring("lse starts at an address that is no multiple of 4"));
  CHECK_THAT(refusal(0, [](Asked& asked) { asked.workspace_bytes -= 1; }), ContainsSubstring("are needed"));
  CHECK_THAT(refusal(0, [](Asked& asked) { asked.workspace = nullptr; }), ContainsSubstring("holds 0 bytes"));
  CHECK_THAT(refusal(0, [](Asked& asked) { asked.workspace = reinterpret_cast<void*>(0x7f0080); }),
             ContainsSubstring("no multiple of 256"));
  CHECK(refusal(2, [&](Asked& asked) { asked.data[at(Operand::bias)] = nullptr; }) == "bias is null");
  CHECK(refusal(2, [&](Asked& asked) { asked.data[at(Operand::bias)] = reinterpret_cast<void*>(0x1001); }) ==
        "bias starts at an address that is no multiple of 2 bytes");
  set_device(7, 5);
  CHECK_THAT(refusal(0, [](Asked&) {}), ContainsSubstring("7.5: these kernels need 8.0 or newer"));
  set_device(10, 0);
  CHECK(refusal(1, [](Asked&) {}) == "the current device has compute capability 10.0: these kernels need 9.0");
  CHECK(refusal(1, [&](Asked& asked) { asked.data[at(Operand::lse)] = nullptr; }) == "lse is null");
}
