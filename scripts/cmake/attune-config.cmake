# find_package(attune CONFIG [COMPONENTS attune runtime]): attune::attune is the C library, attune::runtime the C++ interface. The C library needs
# nothing; the C++ interface needs SQLite and threads, and is left out where they are not found, unless it was asked for as a component. An archive
# for many machines has no C++ interface.
include("${CMAKE_CURRENT_LIST_DIR}/attune-targets.cmake")
set(attune_attune_FOUND TRUE)

find_package(SQLite3 3.37 QUIET)
find_package(Threads QUIET)
if(TARGET SQLite::SQLite3 AND TARGET Threads::Threads AND EXISTS "${CMAKE_CURRENT_LIST_DIR}/attune-runtime-targets.cmake")
  include("${CMAKE_CURRENT_LIST_DIR}/attune-runtime-targets.cmake")
  set(attune_runtime_FOUND TRUE)
else()
  set(attune_runtime_FOUND FALSE)
endif()

foreach(attune_component IN LISTS attune_FIND_COMPONENTS)
  if(attune_FIND_REQUIRED_${attune_component} AND NOT attune_${attune_component}_FOUND)
    set(attune_FOUND FALSE)
    if(attune_component STREQUAL "runtime" AND NOT EXISTS "${CMAKE_CURRENT_LIST_DIR}/attune-runtime-targets.cmake")
      string(APPEND attune_NOT_FOUND_MESSAGE "This installation has no attune::runtime, which only a build from source has. ")
    elseif(attune_component STREQUAL "runtime")
      string(APPEND attune_NOT_FOUND_MESSAGE "attune::runtime needs SQLite 3.37 or newer, with its header (libsqlite3-dev), and threads. ")
    else()
      string(APPEND attune_NOT_FOUND_MESSAGE "Attune has no component ${attune_component}: it has attune and runtime. ")
    endif()
  endif()
endforeach()
unset(attune_component)
