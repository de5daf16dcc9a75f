# Everything the project takes from outside, found once. Nothing is vendored; scripts/install-deps installs it.

# With ATTUNE_STATIC_DEPS programs take static libraries. libattune.so cannot: Debian's static libraries are not position independent.
# It links the shared libsqlite3 in both cases and needs no other library.
if(ATTUNE_STATIC_DEPS)
  set(Boost_USE_STATIC_LIBS ON)
  find_path(ATTUNE_SQLITE_INCLUDE sqlite3.h REQUIRED)
  find_library(ATTUNE_SQLITE_STATIC libsqlite3.a REQUIRED)
  find_library(ATTUNE_SQLITE_SHARED libsqlite3.so REQUIRED)
  add_library(SQLite::SQLite3 INTERFACE IMPORTED)
  target_include_directories(SQLite::SQLite3 INTERFACE ${ATTUNE_SQLITE_INCLUDE})
  target_link_libraries(SQLite::SQLite3 INTERFACE
    "$<IF:$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>,${ATTUNE_SQLITE_STATIC};m;${CMAKE_DL_LIBS},${ATTUNE_SQLITE_SHARED}>")
else()
  find_package(SQLite3 3.37 REQUIRED)
endif()

find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(fmt REQUIRED)

# fmt from its headers, so that nothing needs libfmt.so; of the version that Debian 12 and Ubuntu 24.04 have, compiled once instead of in
# every file that formats: that takes a third off the build.
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  add_library(attune_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt.cpp)
  target_include_directories(attune_fmt PUBLIC $<BUILD_INTERFACE:$<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>>)
else()
  add_library(attune_fmt INTERFACE)
  target_link_libraries(attune_fmt INTERFACE $<BUILD_INTERFACE:fmt::fmt-header-only>)
endif()

if(ATTUNE_BUILD_COMMAND)
  find_package(CLI11 REQUIRED)
  if(ATTUNE_BUILD_EMULATOR)
    find_package(Boost 1.74 REQUIRED COMPONENTS context)
  endif()
endif()

find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
add_library(attune_xxhash INTERFACE)
target_include_directories(attune_xxhash INTERFACE ${XXHASH_INCLUDE_DIR})
target_compile_definitions(attune_xxhash INTERFACE XXH_INLINE_ALL)

# Chart.js draws the pictures of `attune report`; its script and its licence become part of the page.
set(ATTUNE_CHART_SCRIPT /usr/share/javascript/chart.js/chart.min.js CACHE FILEPATH "chart.min.js of Chart.js 3.9: libjs-chart.js's")
set(ATTUNE_CHART_LICENCE /usr/share/doc/libjs-chart.js/copyright CACHE FILEPATH "Chart.js's copyright and licence: libjs-chart.js's")
foreach(file ATTUNE_CHART_SCRIPT ATTUNE_CHART_LICENCE)
  if(ATTUNE_BUILD_COMMAND AND NOT EXISTS ${${file}})
    message(FATAL_ERROR "${${file}} was not found. Run scripts/install-deps (package libjs-chart.js), or name the file of another "
      "installation of Chart.js 3.9 with -D${file}=...")
  endif()
endforeach()

# CUDA: headers only; libcuda and libnvrtc are opened at run time. scripts/install-deps leaves what it found in deps.cmake.
foreach(folder ${CMAKE_BINARY_DIR} ${PROJECT_BINARY_DIR})
  include(${folder}/deps.cmake OPTIONAL)
endforeach()
set(ATTUNE_CUDA_ROOT "" CACHE PATH "CUDA toolkit to take cuda.h and nvrtc.h from; empty: what scripts/install-deps found, else a search")
foreach(header cuda nvrtc)
  string(TOUPPER ${header} name)
  find_path(${header}_include ${header}.h NO_CACHE
    HINTS ${ATTUNE_CUDA_ROOT} ${ATTUNE_FOUND_${name}_INCLUDE} ENV CUDA_HOME ENV CUDA_PATH
    PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES include)
  if(NOT ${header}_include)
    message(FATAL_ERROR "${header}.h was not found. Run scripts/install-deps --build ${CMAKE_BINARY_DIR}, or name a CUDA toolkit of "
      "version 12.4 or newer with -DATTUNE_CUDA_ROOT=...")
  endif()
endforeach()
file(STRINGS ${cuda_include}/cuda.h cuda_version REGEX "^#define[ \t]+CUDA_VERSION[ \t]+[0-9]+")
string(REGEX MATCH "[0-9]+$" cuda_version "${cuda_version}")
if(NOT cuda_version GREATER_EQUAL 12040)
  message(FATAL_ERROR "${cuda_include}/cuda.h is of CUDA_VERSION ${cuda_version}; 12040 or newer is needed. Run scripts/install-deps "
    "--build ${CMAKE_BINARY_DIR}, or name a newer CUDA toolkit with -DATTUNE_CUDA_ROOT=...")
endif()
message(STATUS "CUDA headers: ${cuda_include} (CUDA_VERSION ${cuda_version})")
add_library(attune_cuda_headers INTERFACE)
target_include_directories(attune_cuda_headers SYSTEM INTERFACE ${cuda_include} ${nvrtc_include})
# NVTX is headers too: a profiler brings the rest. Without them calls are not marked, and ATTUNE_NVTX says so.
find_path(ATTUNE_NVTX_INCLUDE nvtx3/nvToolsExt.h HINTS ${cuda_include} ${ATTUNE_FOUND_NVTX_INCLUDE})
if(ATTUNE_NVTX_INCLUDE)
  target_include_directories(attune_cuda_headers SYSTEM INTERFACE ${ATTUNE_NVTX_INCLUDE})
endif()

# Where libnvrtc lies on this machine, for those that the loader's own path does not lead there. A hint: absent elsewhere.
set(ATTUNE_NVRTC_HINT "" CACHE PATH "folder with libnvrtc.so.13 or .12; empty: what scripts/install-deps found, else beside nvrtc.h")
if(NOT ATTUNE_NVRTC_HINT AND NOT SKBUILD AND NOT CMAKE_CROSSCOMPILING)   # these travel: elsewhere this machine's folder may be anybody's
  file(GLOB nvrtc_libraries ${ATTUNE_FOUND_NVRTC_FOLDER}/libnvrtc.so.1[23]
    ${nvrtc_include}/../lib64/libnvrtc.so.1[23] ${nvrtc_include}/../lib/libnvrtc.so.1[23])
  if(nvrtc_libraries)
    list(GET nvrtc_libraries 0 nvrtc_library)
    get_filename_component(nvrtc_folder ${nvrtc_library} DIRECTORY)
    get_filename_component(ATTUNE_NVRTC_HINT ${nvrtc_folder} ABSOLUTE)
  endif()
endif()

if(ATTUNE_BUILD_TESTS)
  find_package(Catch2 REQUIRED)   # v2 on Debian 12, v3 on newer systems
endif()
