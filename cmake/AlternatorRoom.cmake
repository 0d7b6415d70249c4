# How every room and every extension module is built.
#
#   alternator_room(NAME [SWITCHES] [EXCEPT files...])
#     A room: the static library `alternator_NAME` of all sources below csrc/NAME, but for those of EXCEPT. What it may
#     include and links with stands in csrc/layers.txt. Rooms that may include csrc/fake know torch, and share one
#     precompiled header (cmake/torch_pch.h).
#     SWITCHES: it includes py/switches.h, so that `make test-mutants` can switch parts of it off.
#
#   alternator_extension(NAME SOURCES ... ROOM room DEPENDS rooms... [TORCH] [DIRECTORY dir])
#     A Python extension module NAME, built into DIRECTORY (default: the top of the build folder). It may include what
#     ROOM may, and links the rooms of DEPENDS whole.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")

# CPython relies on wrapping signed arithmetic and on type punning through PyObject*.
# Static type objects and method tables name the slots they have, as CPython's own do: the others are zero.
add_compile_options(-fwrapv -fno-strict-aliasing -Wall -Wextra -Wno-missing-field-initializers)
if(ALTERNATOR_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize=alignment)
  add_link_options(-fsanitize=address,undefined)
endif()

find_program(ALTERNATOR_CCACHE ccache)
if(ALTERNATOR_CCACHE)
  # Without these two, ccache never hits a file that uses a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;${ALTERNATOR_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER "${ALTERNATOR_CCACHE}")
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endif()

# The layers: ALTERNATOR_BELOW_<room> is every room that it may include, itself first.
set(ALTERNATOR_LAYERS "${PROJECT_SOURCE_DIR}/csrc/layers.txt")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${ALTERNATOR_LAYERS}")
file(STRINGS "${ALTERNATOR_LAYERS}" lines REGEX "^[a-z]")
foreach(line ${lines})
  string(REGEX MATCH "^([a-z]+)[^:]*:(.*)$" line "${line}")
  set(room ${CMAKE_MATCH_1})
  separate_arguments(allowed UNIX_COMMAND "${CMAKE_MATCH_2}")
  list(APPEND ALTERNATOR_BELOW_${room} ${room})
  foreach(unit ${allowed})
    string(REGEX REPLACE "/.*" "" below "${unit}")
    if(NOT DEFINED ALTERNATOR_BELOW_${below})
      message(FATAL_ERROR "csrc/layers.txt: ${room} names ${below}, which does not stand above it")
    endif()
    list(APPEND ALTERNATOR_BELOW_${room} ${ALTERNATOR_BELOW_${below}})
  endforeach()
  list(REMOVE_DUPLICATES ALTERNATOR_BELOW_${room})
endforeach()

# An include path through which a target finds the rooms below it, and no others.
function(alternator_include_rooms TARGET ROOM)
  set(root "${PROJECT_BINARY_DIR}/include/${ROOM}")
  file(REMOVE_RECURSE "${root}")
  file(MAKE_DIRECTORY "${root}")
  foreach(below ${ALTERNATOR_BELOW_${ROOM}})
    file(CREATE_LINK "${PROJECT_SOURCE_DIR}/csrc/${below}" "${root}/${below}" SYMBOLIC)
  endforeach()
  target_include_directories(${TARGET} PRIVATE "${root}")
endfunction()

function(alternator_room NAME)
  cmake_parse_arguments(ROOM "SWITCHES" "" "EXCEPT" ${ARGN})
  if(ROOM_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "alternator_room(${NAME}): unknown arguments: ${ROOM_UNPARSED_ARGUMENTS}")
  endif()
  set(target alternator_${NAME})
  set(folder "${PROJECT_SOURCE_DIR}/csrc/${NAME}")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${folder}/*.cpp" "${folder}/*.c")
  list(TRANSFORM ROOM_EXCEPT PREPEND "${folder}/")
  list(REMOVE_ITEM sources ${ROOM_EXCEPT})
  add_library(${target} STATIC ${sources})
  alternator_include_rooms(${target} ${NAME})
  target_link_libraries(${target} PUBLIC Python::Module)
  foreach(below ${ALTERNATOR_BELOW_${NAME}})
    if(NOT below STREQUAL NAME)
      target_link_libraries(${target} PUBLIC alternator_${below})
    endif()
  endforeach()
  if("fake" IN_LIST ALTERNATOR_BELOW_${NAME})
    target_link_libraries(${target} PUBLIC alternator_torch)
    target_precompile_headers(${target} REUSE_FROM alternator_torch_pch)
    set_property(GLOBAL APPEND PROPERTY ALTERNATOR_TORCH_ROOMS ${NAME})
  else()
    set_property(GLOBAL APPEND PROPERTY ALTERNATOR_CORE_ROOMS ${NAME})
  endif()
  # A build with switches shares the objects of all rooms that have no switches.
  if(ROOM_SWITCHES AND ALTERNATOR_MUTANTS)
    target_compile_definitions(${target} PRIVATE ALTERNATOR_MUTANTS)
  endif()
endfunction()

function(alternator_extension NAME)
  cmake_parse_arguments(EXTENSION "TORCH" "DIRECTORY;ROOM" "SOURCES;DEPENDS" ${ARGN})
  if(EXTENSION_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "alternator_extension(${NAME}): unknown arguments: ${EXTENSION_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT EXTENSION_DIRECTORY)
    set(EXTENSION_DIRECTORY "${PROJECT_BINARY_DIR}")
  endif()
  Python_add_library(${NAME} MODULE WITH_SOABI ${EXTENSION_SOURCES})
  # No NAME_EXPORTS macro: the shared precompiled header would not match.
  set_target_properties(${NAME} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${EXTENSION_DIRECTORY}" DEFINE_SYMBOL "")
  alternator_include_rooms(${NAME} ${EXTENSION_ROOM})
  foreach(dependency ${EXTENSION_DEPENDS})
    # Whole, because a room may register things in static initializers that nothing refers to by name.
    target_link_libraries(${NAME} PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,alternator_${dependency}>")
  endforeach()
  if(EXTENSION_TORCH)
    target_link_libraries(${NAME} PRIVATE alternator_torch)
    target_precompile_headers(${NAME} REUSE_FROM alternator_torch_pch)
  endif()
endfunction()
