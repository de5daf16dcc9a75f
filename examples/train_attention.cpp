// Trains one attention layer to look things up, forward and backward through Attune.
//
//   q = x Wq   k = x Wk   v = x Wv   o = softmax(q k^T / sqrt(D)) v, for each head
//   y = o Wo   loss = mean (y - target)^2
//
// A token x holds a key (random signs), a value (normal), and the key of another token of its sequence, whose value is
// its target. Nothing tells the layer which of its inputs is what: it has to find out that q is the key asked for, k
// the key and v the value. Products with the weights and the optimizer are plain loops on the CPU; attention runs on a
// GPU or, where there is none, on the emulator, in bf16.
//
// usage: example_train_attention [--device cuda:N|emulator]
// Exit status: 0 if the loss fell by a factor of kExpectedFall, 1 if it did not, 2 for errors.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "attune/attention.h"
#include "generator/error.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/oracle/reference_attention.h"
#include "tuner/trial/worker.h"

namespace {

constexpr int kBatch = 4, kSeq = 48, kHeads = 2, kHeadDim = 16;
constexpr int kKeySize = 10, kValueSize = 4;
constexpr int kTokens = kBatch * kSeq, kInnerSize = kHeads * kHeadDim, kTokenSize = 2 * kKeySize + kValueSize;
constexpr int kSteps = 120, kStepsPerLine = 20;
constexpr double kLearningRate = 0.02;
constexpr double kExpectedFall = 5;

struct Matrix {
  int rows = 0, columns = 0;
  std::vector<float> values;  // row by row

  Matrix(int rows, int columns)
      : rows(rows), columns(columns), values(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns)) {}
  float& at(int row, int column) { return values[static_cast<std::size_t>(row * columns + column)]; }
  float at(int row, int column) const { return values[static_cast<std::size_t>(row * columns + column)]; }
};

Matrix transposed(const Matrix& a) {
  Matrix result(a.columns, a.rows);
  for (int i = 0; i < a.rows; ++i)
    for (int j = 0; j < a.columns; ++j) result.at(j, i) = a.at(i, j);
  return result;
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix result(a.rows, b.columns);
  for (int i = 0; i < a.rows; ++i)
    for (int k = 0; k < a.columns; ++k)
      for (int j = 0; j < b.columns; ++j) result.at(i, j) += a.at(i, k) * b.at(k, j);
  return result;
}

// A matrix that learns, by Adam (Kingma and Ba, 2015).
class Weights {
 public:
  Weights(int rows, int columns, std::mt19937& random)
      : value_(rows, columns), mean_(rows, columns), square_(rows, columns) {
    std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(rows)));
    for (float& weight : value_.values) weight = normal(random);
  }

  const Matrix& value() const { return value_; }

  void learn(const Matrix& gradient) {
    constexpr double kMeanDecay = 0.9, kSquareDecay = 0.99, kTiny = 1e-8;
    ++steps_;
    const double mean_scale = 1 / (1 - std::pow(kMeanDecay, steps_));
    const double square_scale = 1 / (1 - std::pow(kSquareDecay, steps_));
    for (std::size_t i = 0; i < value_.values.size(); ++i) {
      const double g = gradient.values[i];
      const double mean = kMeanDecay * mean_.values[i] + (1 - kMeanDecay) * g;
      const double square = kSquareDecay * square_.values[i] + (1 - kSquareDecay) * g * g;
      mean_.values[i] = static_cast<float>(mean);
      square_.values[i] = static_cast<float>(square);
      value_.values[i] -=
          static_cast<float>(kLearningRate * mean * mean_scale / (std::sqrt(square * square_scale) + kTiny));
    }
  }

 private:
  Matrix value_, mean_, square_;
  int steps_ = 0;
};

// Attention over tokens of kHeads heads side by side, that is, tensors (batch, seq, head, dim). Device memory is
// allocated once.
class Attention {
 public:
  explicit Attention(const std::shared_ptr<attune::Device>& device)
      : device_(device),
        runtime_(device),
        forward_(attune::make_problem(attune::DataType::bf16, kBatch, kHeads, kSeq, kHeadDim)),
        backward_(forward_),
        lse_(device, sizeof(float) * kTokens * kHeads) {
    backward_.pass = attune::Pass::backward;
    backward_.deterministic = true;  // a second run shows the same losses
    for (attune::DeviceBuffer& buffer : buffers_) {
      buffer = attune::DeviceBuffer(device, sizeof(std::uint16_t) * kTokens * kInnerSize);
    }
    workspace_ =
        attune::DeviceBuffer(device, std::max(runtime_.workspace_bytes(forward_), runtime_.workspace_bytes(backward_)));
  }

  Matrix forward(const Matrix& q, const Matrix& k, const Matrix& v) {
    upload(q, kQ);
    upload(k, kK);
    upload(v, kV);
    runtime_.forward(forward_, tensors(), workspace(), workspace_.bytes(), nullptr);
    return download(kO);
  }

  struct Gradients {
    Matrix d_q, d_k, d_v;
  };
  // The gradients of the last forward.
  Gradients backward(const Matrix& d_o) {
    upload(d_o, kDO);
    attune::Tensors all = tensors();
    all[attune::Operand::d_o] = view(kDO);
    all[attune::Operand::d_q] = view(kDQ);
    all[attune::Operand::d_k] = view(kDK);
    all[attune::Operand::d_v] = view(kDV);
    runtime_.backward(backward_, all, workspace(), workspace_.bytes(), nullptr);
    return {download(kDQ), download(kDK), download(kDV)};
  }

 private:
  enum Tensor { kQ, kK, kV, kO, kDO, kDQ, kDK, kDV, kTensors };

  attune::TensorView view(Tensor tensor) const {
    // All have one shape.
    return attune::packed_view(forward_, attune::Operand::q, reinterpret_cast<const void*>(buffers_[tensor].pointer()));
  }
  attune::Tensors tensors() const {
    attune::Tensors tensors;
    tensors[attune::Operand::q] = view(kQ);
    tensors[attune::Operand::k] = view(kK);
    tensors[attune::Operand::v] = view(kV);
    tensors[attune::Operand::o] = view(kO);
    tensors[attune::Operand::lse].data = reinterpret_cast<const void*>(lse_.pointer());
    return tensors;
  }
  void* workspace() const { return reinterpret_cast<void*>(workspace_.pointer()); }

  void upload(const Matrix& matrix, Tensor to) {
    std::vector<std::uint16_t> rounded;
    for (const float value : matrix.values) rounded.push_back(attune::from_double(forward_.dtype, value));
    device_->copy_to_device(buffers_[to].pointer(), rounded.data(), buffers_[to].bytes());
  }
  Matrix download(Tensor from) {
    device_->synchronize(nullptr);
    std::vector<std::uint16_t> rounded(kTokens * kInnerSize);
    device_->copy_from_device(rounded.data(), buffers_[from].pointer(), buffers_[from].bytes());
    Matrix matrix(kTokens, kInnerSize);
    std::transform(rounded.begin(), rounded.end(), matrix.values.begin(),
                   [&](std::uint16_t bits) { return static_cast<float>(attune::to_double(forward_.dtype, bits)); });
    return matrix;
  }

  std::shared_ptr<attune::Device> device_;
  attune::AttentionRuntime runtime_;
  attune::AttentionProblem forward_, backward_;
  std::array<attune::DeviceBuffer, kTensors> buffers_;
  attune::DeviceBuffer lse_, workspace_;
};

struct Examples {
  Matrix tokens{kTokens, kTokenSize}, targets{kTokens, kValueSize};
};

Examples random_examples(std::mt19937& random) {
  Examples examples;
  std::normal_distribution<float> normal;
  for (int token = 0; token < kTokens; ++token) {
    for (int i = 0; i < kKeySize; ++i) examples.tokens.at(token, i) = random() % 2 == 0 ? 1.0f : -1.0f;
    for (int i = 0; i < kValueSize; ++i) examples.tokens.at(token, 2 * kKeySize + i) = normal(random);
  }
  for (int token = 0; token < kTokens; ++token) {
    const int asked = token / kSeq * kSeq + static_cast<int>(random() % kSeq);
    for (int i = 0; i < kKeySize; ++i) examples.tokens.at(token, kKeySize + i) = examples.tokens.at(asked, i);
    for (int i = 0; i < kValueSize; ++i) examples.targets.at(token, i) = examples.tokens.at(asked, 2 * kKeySize + i);
  }
  return examples;
}

class Layer {
 public:
  Layer(const std::shared_ptr<attune::Device>& device, std::mt19937& random)
      : attention_(device),
        w_q_(kTokenSize, kInnerSize, random),
        w_k_(kTokenSize, kInnerSize, random),
        w_v_(kTokenSize, kInnerSize, random),
        w_o_(kInnerSize, kValueSize, random) {}

  // One step of gradient descent. Returns the loss before it.
  double learn(const Examples& examples) {
    const Matrix& x = examples.tokens;
    const Matrix o = attention_.forward(product(x, w_q_.value()), product(x, w_k_.value()), product(x, w_v_.value()));
    Matrix d_y = product(o, w_o_.value());

    double loss = 0;
    const double scale = 1.0 / (kTokens * kValueSize);
    for (std::size_t i = 0; i < d_y.values.size(); ++i) {
      const double error = d_y.values[i] - examples.targets.values[i];
      loss += scale * error * error;
      d_y.values[i] = static_cast<float>(2 * scale * error);
    }

    const auto [d_q, d_k, d_v] = attention_.backward(product(d_y, transposed(w_o_.value())));
    const Matrix x_transposed = transposed(x);
    w_o_.learn(product(transposed(o), d_y));
    w_q_.learn(product(x_transposed, d_q));
    w_k_.learn(product(x_transposed, d_k));
    w_v_.learn(product(x_transposed, d_v));
    return loss;
  }

 private:
  Attention attention_;
  Weights w_q_, w_k_, w_v_, w_o_;
};

std::string device_name(int count, char** arguments) {
  if (count == 1) return attune::list_cuda_devices().empty() ? "emulator" : "cuda:0";
  if (count == 3 && arguments[1] == std::string("--device")) return arguments[2];
  throw attune::Error(attune::ErrorCode::invalid_argument, "usage: example_train_attention [--device cuda:N|emulator]");
}

}  // namespace

int main(int count, char** arguments) try {
  const std::shared_ptr<attune::Device> device =
      attune::open_device(device_name(count, arguments), attune::find_device("a100"));
  std::printf("on %s\n", device->description().c_str());

  std::mt19937 random(1);
  Layer layer(device, random);
  double first_loss = 0, loss = 0;
  for (int step = 0; step <= kSteps; ++step) {
    loss = layer.learn(random_examples(random));
    if (step == 0) first_loss = loss;
    if (step % kStepsPerLine == 0) std::printf("step %3d: loss %.4f\n", step, loss);
  }
  const double fall = first_loss / loss;
  std::printf("the loss fell by a factor of %.1f, expected are %.0f\n", fall, kExpectedFall);
  return fall >= kExpectedFall ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
