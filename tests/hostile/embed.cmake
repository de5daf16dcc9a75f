# Sets `embedded` to a C++ file, made anew at each change of tests/hostile/*.cu, that holds them.
file(GLOB hostile CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cu)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${hostile})
set(text "#include \"tests/hostile/embedded.h\"\n\nnamespace attune::test {\n\nconst HostileTemplate kHostileTemplates[] = {\n")
foreach(file IN LISTS hostile)
  file(READ ${file} body)
  get_filename_component(name ${file} NAME_WE)
  string(APPEND text "    {\"${name}\", R\"hostile(${body})hostile\"},\n")
endforeach()
string(APPEND text "};\nconst std::size_t kHostileTemplateCount = sizeof(kHostileTemplates) / sizeof(kHostileTemplates[0]);\n\n"
  "}  // namespace attune::test\n")
set(embedded ${CMAKE_CURRENT_BINARY_DIR}/hostile_templates.cpp)
file(CONFIGURE OUTPUT ${embedded} CONTENT "${text}" @ONLY)
