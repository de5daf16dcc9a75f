# `cmake --install build --prefix DIR`: the command unless ATTUNE_BUILD_COMMAND=OFF leaves it out, libattune.so with its C header, what
# find_package(attune) and pkg-config need to find it, and papers. The shipped presets are inside the command and the library; as JSON, to
# read and to import, they lie in share/attune. The C++ interface is not installed: C++ programs that want it add this folder to their project.
if(ATTUNE_BUILD_COMMAND)
  install(TARGETS attune RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(TARGETS attune_shared EXPORT attune-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_SOURCE_DIR}/bindings/c/attune.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tuner/presets/ DESTINATION ${CMAKE_INSTALL_DATADIR}/attune/presets FILES_MATCHING PATTERN "*.json")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR})

# find_package(attune CONFIG): target attune::attune, as in a project that adds this folder. Paths are relative, so that the prefix may be moved.
# Before 1.0 a minor version may change the interface.
include(CMakePackageConfigHelpers)
set(attune_package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/attune)
set_target_properties(attune_shared PROPERTIES EXPORT_NAME attune)
install(EXPORT attune-targets FILE attune-config.cmake NAMESPACE attune:: DESTINATION ${attune_package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/attune-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/attune-config-version.cmake DESTINATION ${attune_package_folder})

# pkg-config attune: the same for other builds.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  message(FATAL_ERROR "CMAKE_INSTALL_LIBDIR and CMAKE_INSTALL_INCLUDEDIR must be relative to the prefix, which may be chosen when Attune is installed")
endif()
file(RELATIVE_PATH attune_prefix_from_pkgconfig /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/attune.pc.in ${PROJECT_BINARY_DIR}/attune.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/attune.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
