# alternator_room(NAME SOURCES ... [DEPENDS rooms...] [PCH header] [TORCH])
#
# A room is a static library `alternator_NAME` that sees csrc/ as its include root and links only the
# rooms it names: a wrong dependency between rooms fails at configure or at compile time.

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

find_program(ALTERNATOR_CCACHE ccache)
if(ALTERNATOR_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${ALTERNATOR_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER "${ALTERNATOR_CCACHE}")
endif()

# CPython relies on wrapping arithmetic and on type punning through PyObject*.
add_compile_options(-fwrapv -fno-strict-aliasing -Wall -Wextra -Wno-missing-field-initializers
                    -Wno-unused-parameter -Wno-cast-function-type)
if(ALTERNATOR_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-omit-frame-pointer -fno-sanitize=alignment)
  add_link_options(-fsanitize=address,undefined)
endif()

function(alternator_room NAME)
  cmake_parse_arguments(ROOM "TORCH" "PCH" "SOURCES;DEPENDS" ${ARGN})
  set(target alternator_${NAME})
  add_library(${target} STATIC ${ROOM_SOURCES})
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}/csrc")
  target_link_libraries(${target} PUBLIC Python::Module)
  foreach(dependency ${ROOM_DEPENDS})
    target_link_libraries(${target} PUBLIC alternator_${dependency})
  endforeach()
  if(ROOM_TORCH)
    target_link_libraries(${target} PUBLIC alternator_torch)
  endif()
  if(ROOM_PCH)
    target_precompile_headers(${target} PRIVATE "${ROOM_PCH}")
  endif()
endfunction()
