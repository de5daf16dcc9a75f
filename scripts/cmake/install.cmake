# `cmake --install build --prefix DIR`: the command unless ATTUNE_BUILD_COMMAND=OFF leaves it out, libattune.so with its C header, the C++
# interface as headers and static libraries, what find_package(attune) and pkg-config need to find these, and papers. The shipped presets are
# inside the command and the libraries; as JSON, to read and to import, they lie in share/attune. Of the components, which are find_package's, `runtime`
# is the C++ interface and `attune` all else: what a build by another compiler can use.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  message(FATAL_ERROR "CMAKE_INSTALL_LIBDIR and CMAKE_INSTALL_INCLUDEDIR must be relative to the prefix, which may be chosen when Attune is installed")
endif()
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME attune)
if(ATTUNE_BUILD_COMMAND)
  install(TARGETS attune RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS attune_shared EXPORT attune-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_SOURCE_DIR}/bindings/c/attune.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tuner/presets/ DESTINATION ${CMAKE_INSTALL_DATADIR}/attune/presets FILES_MATCHING PATTERN "*.json")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The C++ interface: these headers and those that they include, in a folder of their own, so that `generator/` and the like are nobody else's
# path. Its libraries are static, because the interface of C++ classes may change with each version.
file(GLOB attune_interface CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/runtime/include ${PROJECT_SOURCE_DIR}/runtime/include/attune/*.h)
list(APPEND attune_interface generator/error.h generator/generate.h runtime/cuda/cuda_device.h tuner/database/tuned_configs.h)
set(attune_header_folder ${CMAKE_INSTALL_INCLUDEDIR}/attune)
set(listed)
while(attune_interface)
  list(POP_FRONT attune_interface header)
  list(APPEND listed ${header})
  set(path ${PROJECT_SOURCE_DIR}/${header})
  if(header MATCHES "^attune/")
    set(path ${PROJECT_SOURCE_DIR}/runtime/include/${header})
  endif()
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${path} DESTINATION ${attune_header_folder}/${folder} COMPONENT runtime)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(STRINGS ${path} includes REGEX "^#include \"")
  foreach(line IN LISTS includes)
    string(REGEX REPLACE "^#include \"(.*)\".*" "\\1" included "${line}")
    if(NOT included IN_LIST listed AND NOT included IN_LIST attune_interface)
      list(APPEND attune_interface ${included})
    endif()
  endforeach()
endwhile()
set_target_properties(attune_database PROPERTIES EXPORT_NAME runtime)   # the others are its parts: nobody links them by name
install(TARGETS attune_database attune_database_files attune_runtime attune_generator attune_templates attune_fmt EXPORT attune-runtime-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/attune COMPONENT runtime INCLUDES DESTINATION ${attune_header_folder})

# find_package(attune CONFIG): targets attune::attune and attune::runtime, as in a project that adds this folder. Paths are relative, so that the
# prefix may be moved. Before 1.0 a minor version may change the interface.
include(CMakePackageConfigHelpers)
set(attune_package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/attune)
set_target_properties(attune_shared PROPERTIES EXPORT_NAME attune)
install(EXPORT attune-targets NAMESPACE attune:: DESTINATION ${attune_package_folder})
install(EXPORT attune-runtime-targets NAMESPACE attune:: DESTINATION ${attune_package_folder} COMPONENT runtime)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/attune-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/attune-config.cmake ${PROJECT_BINARY_DIR}/attune-config-version.cmake DESTINATION ${attune_package_folder})

# pkg-config attune: the C library for other builds.
file(RELATIVE_PATH attune_prefix_from_pkgconfig /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/attune.pc.in ${PROJECT_BINARY_DIR}/attune.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/attune.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(PROJECT_IS_TOP_LEVEL)
  include(${CMAKE_CURRENT_LIST_DIR}/packages.cmake)
endif()
