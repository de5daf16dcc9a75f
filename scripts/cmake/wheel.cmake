# What scikit-build-core puts into a wheel (pyproject.toml), beside the Python files: the library in the package, where its module looks, and
# the command among the environment's programs. A wheel has no links, so the library has one name.
install(FILES $<TARGET_FILE:attune_shared> DESTINATION attune_kernels/lib RENAME libattune.so)
install(TARGETS attune RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR})
