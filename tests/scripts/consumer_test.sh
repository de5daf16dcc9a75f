#!/usr/bin/env bash
# A project of C++17 that adds Attune's folder gets C++20 for what links its C++ interface, none of Attune's settings, and the presets: it
# describes what is picked for an H200 that is not here. A C program of the same project links libattune.so, which is installed without the
# command. The compiler's cache makes a second build cheap.
# usage: consumer_test.sh SOURCE_FOLDER BUILD_FOLDER [CMAKE_OPTION...]
set -euo pipefail
source=$1 build=$2
shift 2
folder=$build/consumer
mkdir -p "$folder/project"
cat >"$folder/project/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES C CXX)
set(CMAKE_CXX_STANDARD 17)
add_subdirectory($source attune)
add_executable(consumer consumer.cpp)
target_link_libraries(consumer PRIVATE attune::runtime)
add_executable(caller caller.c)
target_link_libraries(caller PRIVATE attune::attune)
foreach(variable CMAKE_BUILD_TYPE CMAKE_RUNTIME_OUTPUT_DIRECTORY CMAKE_LIBRARY_OUTPUT_DIRECTORY CMAKE_EXPORT_COMPILE_COMMANDS)
  if(\${variable})
    message(FATAL_ERROR "attune has set \${variable} of the project that added it")
  endif()
endforeach()
foreach(target attune test_generator)
  if(TARGET \${target})
    message(FATAL_ERROR "\${target} is built although only the library was asked for")
  endif()
endforeach()
CMAKE
cat >"$folder/project/consumer.cpp" <<'CPP'
#include <cstdio>

#include "attune/attention.h"
#include "generator/device/device_spec.h"
#include "tuner/database/tuned_configs.h"

static_assert(__cplusplus >= 202002L, "what Attune's headers need");

int main() {
  attune::use_tuned_configs();  // links, and takes no GPU
  const attune::AttentionProblem problem =
      attune::make_problem(attune::DataType::bf16, 4, 16, 4096, 128, attune::MaskKind::causal);
  const auto choice = attune::TunedConfigs::at_default_places()->find(problem, attune::find_device("h200"));
  if (!choice) return std::puts("nothing is picked: the presets are missing"), 1;
  std::printf("%s\n", choice->detail.c_str());
  return choice->origin == attune::ConfigOrigin::exact ? 0 : 1;
}
CPP
cat >"$folder/project/caller.c" <<'C'
#include <attune.h>
#include <stdio.h>
int main(void) { return puts(attune_version()) < 0; }
C
cp "$build/deps.cmake" "$folder/" 2>/dev/null || true
cmake -S "$folder/project" -B "$folder" -G Ninja -DATTUNE_INSTALL=ON "$@" >"$folder/log" || { cat "$folder/log"; exit 1; }
cmake --build "$folder" --parallel "$(nproc)" --target consumer caller
env -u ATTUNE_SYSTEM_DATABASE ATTUNE_DATABASE=/nonexistent/none.db "$folder/consumer"
"$folder/caller"

rm -rf "$folder/prefix"
cmake --install "$folder" --prefix "$folder/prefix" >"$folder/log" || { cat "$folder/log"; exit 1; }
installed=$(find "$folder/prefix" \( -name libattune.so -o -name attune.h -o -name attune-config.cmake \) | wc -l)
[ "$installed" = 3 ] || { echo "consumer test: libattune.so and what finds it are not all installed" >&2; exit 1; }
[ ! -e "$folder/prefix/bin/attune" ] || { echo "consumer test: the command is installed, which was left out" >&2; exit 1; }
