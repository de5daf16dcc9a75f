# Everything the project takes from outside, found once. Nothing is vendored; scripts/install-deps installs it.
if(ATTUNE_STATIC_DEPS)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  set(Boost_USE_STATIC_LIBS ON)
endif()

find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(fmt REQUIRED)
find_package(SQLite3 3.37 REQUIRED)
find_package(Boost 1.74 REQUIRED COMPONENTS context)

find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
add_library(attune_xxhash INTERFACE)
target_include_directories(attune_xxhash INTERFACE ${XXHASH_INCLUDE_DIR})
target_compile_definitions(attune_xxhash INTERFACE XXH_INLINE_ALL)

# Headers only: libcuda and libnvrtc are opened at run time.
find_path(ATTUNE_CUDA_INCLUDE_DIR cuda.h
  HINTS ${ATTUNE_CUDA_ROOT} ENV CUDA_HOME ENV CUDA_PATH
  PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES include REQUIRED)
find_path(ATTUNE_NVRTC_INCLUDE_DIR nvrtc.h
  HINTS ${ATTUNE_NVRTC_ROOT} ${ATTUNE_CUDA_INCLUDE_DIR} ENV CUDA_HOME ENV CUDA_PATH
  PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES include . REQUIRED)
add_library(attune_cuda_headers INTERFACE)
target_include_directories(attune_cuda_headers SYSTEM INTERFACE ${ATTUNE_CUDA_INCLUDE_DIR} ${ATTUNE_NVRTC_INCLUDE_DIR})

if(ATTUNE_BUILD_TESTS)
  find_package(Catch2 REQUIRED)   # v2 on Debian 12, v3 on newer systems
endif()
