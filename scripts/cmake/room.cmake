# attune_room(TARGET room): lets whoever links TARGET write #include "room/...", and nobody else: the include folder holds
# nothing but a link to that room, so that an include of a room that a target may not know fails to build.
function(attune_room target room)
  set(view ${PROJECT_BINARY_DIR}/rooms/${room})
  file(MAKE_DIRECTORY ${view})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${room} ${view}/${room} SYMBOLIC)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${view}>)
endfunction()
