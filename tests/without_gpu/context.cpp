#include <thread>

#include "attune/attention.h"
#include "generator/error.h"
#include "runtime/cuda/cuda_device.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/without_gpu/fake/cuda.h"

using namespace attune;
using attune::testing::error_of;

namespace {

// A context is current in its own thread only.
template <typename Body>
void in_thread(const Body& body) {
  std::thread(body).join();
}

// A whole forward call on the runtime that `call` chooses.
template <typename Runtime>
void run_forward(const Runtime& runtime) {
  const AttentionProblem problem = make_problem(DataType::bf16, 1, 1, 64, 64);
  alignas(16) static unsigned char bytes[4][64 * 64 * 2];
  Tensors tensors;
  TensorView* const views[] = {&tensors[Operand::q], &tensors[Operand::k], &tensors[Operand::v], &tensors[Operand::o]};
  for (int i = 0; i < 4; ++i) {
    *views[i] = packed_view(problem, Operand::q);
    views[i]->data = bytes[i];
  }
  runtime().forward(problem, tensors, nullptr, 0, nullptr);
}

}  // namespace

TEST_CASE("the current device is that of the current context, or the first", "[nogpu]") {
  in_thread([] {
    CHECK(current_cuda_ordinal() == 0);
    const auto second = open_cuda_device(1);
    fake_cuda_set_current(fake_cuda_primary(1));
    CHECK(current_cuda_ordinal() == 1);
    CHECK(current_cuda_device() == second);
    const unsigned before = fake_cuda_launches();
    run_forward([]() -> AttentionRuntime& { return current_runtime(); });
    CHECK(fake_cuda_launches() == before + 1);
    fake_cuda_set_current(nullptr);
    CHECK(current_cuda_ordinal() == 0);
  });
}

TEST_CASE("a context of the caller's own is refused with what to do", "[nogpu]") {
  in_thread([] {
    fake_cuda_set_current(fake_cuda_own(1));
    const auto refused = [] { run_forward([]() -> AttentionRuntime& { return current_runtime(); }); };
    const int before = fake_cuda_retained(1);
    const std::string text = error_of(ErrorCode::invalid_argument, refused);
    CHECK_THAT(text, ContainsSubstring("not the primary context of cuda:1") && ContainsSubstring("cuCtxSetCurrent") &&
                         ContainsSubstring("attune_problem::device"));
    CHECK(fake_cuda_retained(1) == before);  // asking leaves nothing behind

    // Named, the device runs by its primary context, which other calls of this thread do not see.
    const unsigned launches = fake_cuda_launches();
    run_forward([]() -> AttentionRuntime& { return runtime_of(1); });
    CHECK(fake_cuda_launches() == launches + 1);
    CHECK(error_of(ErrorCode::invalid_argument, refused) == text);

    // What was accepted once is looked at again when another context is current.
    fake_cuda_set_current(fake_cuda_primary(1));
    CHECK(current_cuda_ordinal() == 1);
    fake_cuda_set_current(fake_cuda_own(1));
    CHECK(error_of(ErrorCode::invalid_argument, refused) == text);
    fake_cuda_set_current(nullptr);
  });
}
