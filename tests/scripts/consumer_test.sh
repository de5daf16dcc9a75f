#!/usr/bin/env bash
# examples/project, as a project of C++17 that adds Attune's folder by add_subdirectory and by FetchContent: it gets C++20 for what links the C++
# interface, none of Attune's settings, and the presets, so that it tells what is picked for an H200 that is not here. Its C program links
# libattune.so, which is installed without the command. The compiler's cache makes a second build cheap.
# usage: consumer_test.sh configured|built SOURCE_FOLDER BUILD_FOLDER [CMAKE_OPTION...]      `configured` builds nothing: what Attune does to
# the project that adds it, and that its targets are there
set -euo pipefail
until=$1 source=$2 build=$3
shift 3
folder=$build/project-$until
mkdir -p "$folder"
cat >"$folder/checks.cmake" <<'CMAKE'
function(check_what_attune_left)
  foreach(variable CMAKE_BUILD_TYPE CMAKE_RUNTIME_OUTPUT_DIRECTORY CMAKE_LIBRARY_OUTPUT_DIRECTORY CMAKE_EXPORT_COMPILE_COMMANDS)
    if(${variable})
      message(FATAL_ERROR "attune has set ${variable} of the project that added it")
    endif()
  endforeach()
  if(NOT CMAKE_CXX_STANDARD EQUAL 17)
    message(FATAL_ERROR "attune has changed the C++ standard of the project that added it to ${CMAKE_CXX_STANDARD}")
  endif()
  foreach(target attune test_generator attune_emulator)
    if(TARGET ${target})
      message(FATAL_ERROR "${target} is built although only the libraries were asked for")
    endif()
  endforeach()
endfunction()
cmake_language(DEFER CALL check_what_attune_left)
CMAKE
cp "$build/deps.cmake" "$folder/" 2>/dev/null || true
# FetchContent first: it keeps its build where the other way is told to, so that the second way finds everything compiled.
for way in FetchContent add_subdirectory; do
  cmake -S "$source/examples/project" -B "$folder" -G Ninja -DATTUNE_BY=$way -DATTUNE_INSTALL=ON -DCMAKE_CXX_STANDARD=17 \
    -DCMAKE_PROJECT_uses_attune_INCLUDE="$folder/checks.cmake" "$@" >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
  [ "$until" = built ] || continue
  rm -f "$folder/picks" "$folder/caller"
  cmake --build "$folder" --parallel "$(nproc)" --target picks caller
  env -u ATTUNE_SYSTEM_DATABASE ATTUNE_DATABASE=/nonexistent/none.db "$folder/picks"
  "$folder/caller"
done
[ "$until" = built ] || exit 0

rm -rf "$folder/prefix"
cmake --install "$folder" --prefix "$folder/prefix" >"$folder/log" || { cat "$folder/log"; exit 1; }
installed=$(find "$folder/prefix" \( -name libattune.so -o -name libattune_database.a -o -name attune.h -o -name attune-config.cmake \) | wc -l)
[ "$installed" = 4 ] || { echo "consumer test: the libraries and what finds them are not all installed" >&2; exit 1; }
[ ! -e "$folder/prefix/bin/attune" ] || { echo "consumer test: the command is installed, which was left out" >&2; exit 1; }
