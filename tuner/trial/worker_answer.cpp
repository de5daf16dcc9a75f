#include "tuner/trial/worker_answer.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/system/json_text.h"
#include "runtime/system/printable.h"

namespace attune {
namespace {

// What a worker states; none if the answer states no error.
std::optional<Error> error_of(const nlohmann::json& answer) {
  const std::string message = printable(text_of(answer, "error"));  // a NUL would end it where it is shown
  if (message.empty()) return std::nullopt;
  try {
    const auto code =
        JsonView(answer, "answer")
            .at("code")
            .whole<int>(static_cast<int>(ErrorCode::invalid_argument), static_cast<int>(ErrorCode::internal));
    return Error(static_cast<ErrorCode>(code), message);
  } catch (const Error&) {
    return Error(ErrorCode::internal, message);
  }
}

}  // namespace

bool is_of_environment(ErrorCode code) {
  return code == ErrorCode::no_device || code == ErrorCode::nvrtc_unavailable || code == ErrorCode::io ||
         code == ErrorCode::template_error;
}

nlohmann::json parse_worker_answer(const std::string& line) {
  try {
    nlohmann::json answer = parse_json(line, "the worker's answer");
    return answer.is_object() ? answer : nlohmann::json();
  } catch (const Error&) {
    return {};
  }
}

std::string text_of(const nlohmann::json& answer, const char* field) {
  const auto found = answer.find(field);
  return found != answer.end() && found->is_string() ? found->get<std::string>() : std::string();
}

void throw_if_environment_failed(const nlohmann::json& answer) {
  const std::optional<Error> error = error_of(answer);
  if (error && is_of_environment(error->code())) throw *error;
}

void throw_if_error(const nlohmann::json& answer) {
  if (const std::optional<Error> error = error_of(answer)) throw *error;
}

}  // namespace attune
