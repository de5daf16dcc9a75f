# Writes OUTPUT: a C++ file that holds PAGE, STYLE, SCRIPT, LIBRARY and LIBRARY_LICENCE as raw string literals.
set(text "#include \"tuner/report/embedded_page.h\"\n\nnamespace attune {\n\nEmbeddedPage embedded_page() {\n  return {\n")
foreach(part PAGE STYLE SCRIPT LIBRARY LIBRARY_LICENCE)
  file(READ ${${part}} body)
  string(APPEND text "      R\"attune_page(${body})attune_page\",\n")
endforeach()
string(APPEND text "  };\n}\n\n}  // namespace attune\n")
file(WRITE ${OUTPUT} "${text}")
