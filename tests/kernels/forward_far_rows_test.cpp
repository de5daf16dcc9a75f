#include "generator/error.h"
#include "tests/catch.h"
#include "tests/kernels/forward_checks.h"

namespace attune::tests {
namespace {

// Rows more than 2^31 elements apart: every offset must be computed in 64 bits. Only a few rows of the memory are
// touched.
void check_far_rows(const std::shared_ptr<Device>& device, bool far_rows) {
  const std::int64_t far = (std::int64_t{1} << 31) + 4096;
  ForwardCase test = case_from("forward bf16 b2 hq2 hkv1 sq70 skv70 d64 causal", "sm80 q64 kv64 w4 st2");
  if (far_rows) test = case_from("forward bf16 b1 hq1 sq2 skv2 d64", "sm80 q64 kv64 w4 st2");
  INFO(to_string(test) << (far_rows ? ", rows" : ", batch entries") << " 2^31 elements apart");
  const ForwardData data = make_data(test);
  const Expected expected = expected_forward(test, data);
  const std::size_t bytes = 2 * static_cast<std::size_t>(far) + (1 << 20);

  AttentionRuntime runtime(device);
  // One tensor at a time lies far apart: a GPU need not hold four such tensors.
  for (const Operand operand : {Operand::q, Operand::k, Operand::v, Operand::o}) {
    INFO("tensor " << to_string(operand));
    const TensorImage* images[] = {&data.q, &data.k, &data.v, &data.o};
    TensorView views[4];
    std::vector<DeviceBuffer> buffers;
    for (int i = 0; i < 4; ++i) {
      const TensorImage& image = *images[i];
      views[i] = image.strides;
      if (static_cast<int>(operand) != i) {
        buffers.emplace_back(device, 2 * image.memory.size());
        device->copy_to_device(buffers[i].pointer(), image.memory.data(), buffers[i].bytes());
        views[i].data =
            reinterpret_cast<const void*>(buffers[i].pointer() + 2 * static_cast<std::uint64_t>(image.origin));
        continue;
      }
      buffers.emplace_back(device, bytes);
      (far_rows ? views[i].stride_row : views[i].stride_batch) = far;
      views[i].data = reinterpret_cast<const void*>(buffers[i].pointer());
      const std::int64_t heads = i == 0 || i == 3 ? test.problem.heads_q : test.problem.heads_kv;
      for (std::int64_t b = 0; b < test.problem.batch; ++b) {
        for (std::int64_t h = 0; h < heads; ++h) {
          for (std::int64_t s = 0; s < test.problem.seq_q; ++s) {
            const std::int64_t to = b * views[i].stride_batch + h * views[i].stride_head + s * views[i].stride_row;
            device->copy_to_device(buffers[i].pointer() + 2 * static_cast<std::uint64_t>(to),
                                   &image.memory[static_cast<std::size_t>(image.index(b, h, s))],
                                   2 * static_cast<std::size_t>(test.problem.head_dim));
          }
        }
      }
    }
    Tensors tensors;
    tensors[Operand::q] = views[0];
    tensors[Operand::k] = views[1];
    tensors[Operand::v] = views[2];
    tensors[Operand::o] = views[3];
    const auto prepared = runtime.prepare(test.problem, test.config);
    runtime.launch(*prepared, test.problem, tensors, nullptr, 0, nullptr);
    device->synchronize(nullptr);

    // O is brought back into its small image, and judged there.
    ForwardResult result{data.q.memory, data.k.memory, data.v.memory, data.o.memory, {}};
    for (std::int64_t b = 0; b < test.problem.batch; ++b) {
      for (std::int64_t h = 0; h < test.problem.heads_q; ++h) {
        for (std::int64_t s = 0; s < test.problem.seq_q; ++s) {
          const char* from = static_cast<const char*>(views[3].data) +
                             2 * (b * views[3].stride_batch + h * views[3].stride_head + s * views[3].stride_row);
          device->copy_from_device(&result.o[static_cast<std::size_t>(data.o.index(b, h, s))],
                                   reinterpret_cast<DevicePointer>(from),
                                   2 * static_cast<std::size_t>(test.problem.head_dim));
        }
      }
    }
    CHECK(complaint(test, data, expected, result) == "");
  }
}

}  // namespace

TEST_CASE("forward reaches rows beyond 2^31 elements on the emulator", "[emulator]") {
  const auto device = make_emulator_device(find_device("h200"));
  check_far_rows(device, false);
  check_far_rows(device, true);
}

TEST_CASE("forward reaches rows beyond 2^31 elements on the GPU", "[gpu]") {
  check_far_rows(open_cuda_device(0), false);
  check_far_rows(open_cuda_device(0), true);
}

}  // namespace attune::tests
