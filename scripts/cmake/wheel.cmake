# What scikit-build-core puts into a wheel (pyproject.toml), beside the Python files: the library in the package, where its module looks, and
# the command among the environment's programs. A wheel has no links, so the library has one name. ATTUNE_PREBUILT is a build folder whose files are
# taken as they are, for a test of the packaging alone.
if(ATTUNE_PREBUILT)
  set(attune_library ${ATTUNE_PREBUILT}/lib/libattune.so.${PROJECT_VERSION})
  set(attune_command ${ATTUNE_PREBUILT}/bin/attune)
else()
  set(attune_library $<TARGET_FILE:attune_shared>)
  set(attune_command $<TARGET_FILE:attune>)
endif()
install(FILES ${attune_library} DESTINATION attune_kernels/lib RENAME libattune.so)
install(PROGRAMS ${attune_command} DESTINATION ${SKBUILD_SCRIPTS_DIR})
