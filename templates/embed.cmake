# Writes OUTPUT: a C++ file that holds each of FILES (paths below ROOT) as a raw string literal.
# A literal may hold at most 64 KiB in some compilers: keep templates smaller. The suffix tells its length, which clang would count in more
# steps than it allows a constant.
set(text "#include \"templates/embedded_templates.h\"\n\nnamespace attune {\nnamespace {\nusing namespace std::string_view_literals;\n\nconstexpr EmbeddedTemplate kTemplates[] = {\n")
list(SORT FILES)
foreach(file IN LISTS FILES)
  file(READ ${ROOT}/${file} body)
  string(REGEX REPLACE "\\.cu$" "" name ${file})
  string(APPEND text "    {\"${name}\", R\"attune_template(${body})attune_template\"sv},\n")
endforeach()
string(APPEND text "};\n}  // namespace\n\nconst EmbeddedTemplate* embedded_templates(std::size_t* count) {\n"
  "  *count = sizeof(kTemplates) / sizeof(kTemplates[0]);\n  return kTemplates;\n}\n\n}  // namespace attune\n")
file(WRITE ${OUTPUT} "${text}")
