# Headers of others that most files include, parsed once for many: standard ones and fmt everywhere, nlohmann_json and Catch2 where
# a room uses them in most files. Only headers that the build does not change, so that no edit of ours parses them again. A file still
# includes what it uses: ATTUNE_PRECOMPILED_HEADERS=OFF builds without, and clang-tidy reads it so.
option(ATTUNE_PRECOMPILED_HEADERS "parse the headers of libraries once for many files" ON)

set(attune_common_headers <algorithm> <array> <atomic> <bit> <charconv> <chrono> <cmath> <cstdint> <cstdio> <cstdlib> <cstring>
    <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex> <optional> <set> <span> <string> <string_view> <thread> <tuple>
    <unordered_map> <utility> <vector> <fmt/format.h> <fmt/ranges.h>)

# ccache keeps what is compiled with precompiled headers only if it is told so: their macros are the same for the same flags, and no file
# asks for the time. The preprocessor's output names them.
if(ATTUNE_PRECOMPILED_HEADERS AND CMAKE_CXX_COMPILER_LAUNCHER MATCHES "(^|/)ccache$")
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

# attune_precompile(TARGET HEADERS ...): the common headers and these.
# attune_precompile(TARGET LIKE OTHER): those of OTHER, parsed once for both, which must be compiled with the same options and definitions.
function(attune_precompile target)
  if(NOT ATTUNE_PRECOMPILED_HEADERS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "LIKE" "HEADERS" ${ARGN})
  if(ARG_LIKE)
    target_precompile_headers(${target} REUSE_FROM ${ARG_LIKE})
  else()
    target_precompile_headers(${target} PRIVATE ${attune_common_headers} ${ARG_HEADERS})
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
endfunction()
