# ${title}
# ${licence}
#
#   cmake -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build && ctest --test-dir build
cmake_minimum_required(VERSION 3.18)
project(${name} LANGUAGES CXX CUDA)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CUDA_STANDARD 17)

add_library(${name} STATIC kernel.cu launch.cpp)
set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES ${cmake_architecture} POSITION_INDEPENDENT_CODE ON)
find_package(CUDAToolkit REQUIRED)
target_link_libraries(${name} PUBLIC CUDA::cudart_static)
target_include_directories(${name} PUBLIC .)

add_executable(${name}_test test.cu)
set_target_properties(${name}_test PROPERTIES CUDA_ARCHITECTURES ${cmake_architecture})
target_link_libraries(${name}_test PRIVATE ${name})
enable_testing()
add_test(NAME ${name} COMMAND ${name}_test)
