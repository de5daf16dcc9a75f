# `cmake --install build --prefix DIR`: the command, libattune.so with its C header, and papers. The shipped presets are inside the command and the
# library; as JSON, to read and to import, they lie in share/attune. What C++ programs would need to find Attune installed is not
# installed: they add this folder to their project.
include(GNUInstallDirs)
if(NOT ATTUNE_BUILD_COMMAND)
  message(FATAL_ERROR "ATTUNE_INSTALL installs the command and libattune.so, which ATTUNE_BUILD_COMMAND=OFF leaves out")
endif()
install(TARGETS attune RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS attune_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_SOURCE_DIR}/bindings/c/attune.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tuner/presets/ DESTINATION ${CMAKE_INSTALL_DATADIR}/attune/presets FILES_MATCHING PATTERN "*.json")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
