# `cpack` in the build folder packs what `cmake --install` installs: as an archive that may be unpacked anywhere, and where dpkg is, as a Debian
# package. Only of a build of Attune itself: a project that adds this folder packs in its own way.
set(CPACK_PACKAGE_NAME attune)
set(CPACK_PACKAGE_VENDOR Attune)
set(CPACK_PACKAGE_CONTACT "The maintainers of Attune <maintainers@attune.invalid>")   # dpkg asks for an address; SECURITY.md says whom to tell
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "FlashAttention kernels for NVIDIA GPUs, generated and tuned at run time")
set(CPACK_PACKAGE_DESCRIPTION "Attune writes CUDA source of attention kernels for a problem and a GPU, compiles it with NVRTC, validates and times candidates,
and picks the winner whenever the library is called. The package holds the command, the C library, the C++ interface and the shipped presets.
A call needs the driver of an NVIDIA GPU and NVRTC of CUDA 12.4 or newer, which are found at run time.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_FILE_NAME attune-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_SOURCE_GENERATOR TGZ)
set(CPACK_SOURCE_IGNORE_FILES "/[.]git/;/build[^/]*/;/__pycache__/")

set(CPACK_GENERATOR TGZ)
find_program(ATTUNE_DPKG dpkg)
if(ATTUNE_DPKG)
  list(APPEND CPACK_GENERATOR DEB)
endif()
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)   # and the trigger of ldconfig
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libsqlite3-0 (>= 3.37)")
find_program(ATTUNE_DPKG_SHLIBDEPS dpkg-shlibdeps)
if(ATTUNE_DPKG_SHLIBDEPS)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)   # adds what the programs load
else()
  string(APPEND CPACK_DEBIAN_PACKAGE_DEPENDS ", libc6, libstdc++6")
endif()
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libcuda1, libnvrtc12 | cuda-nvrtc-13-0 | cuda-nvrtc-12-9")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libsqlite3-dev")   # for programs that link the C++ interface
include(CPack)
