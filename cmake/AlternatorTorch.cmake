# Finds the torch that the build interpreter imports, as the interface library `alternator_torch`.
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c "import torch; print(torch.utils.cmake_prefix_path)"
  OUTPUT_VARIABLE ALTERNATOR_TORCH_PREFIX
  OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE ALTERNATOR_TORCH_RESULT
  ERROR_QUIET)
if(NOT ALTERNATOR_TORCH_RESULT EQUAL 0)
  message(FATAL_ERROR "torch is not importable from ${Python_EXECUTABLE}: install torch==2.13.0 there, "
                      "or configure with -DALTERNATOR_TORCH=OFF")
endif()
list(APPEND CMAKE_PREFIX_PATH "${ALTERNATOR_TORCH_PREFIX}")
# Torch's configuration warns about static libraries that its own wheel does not carry.
set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
find_package(Torch REQUIRED)
unset(CMAKE_MESSAGE_LOG_LEVEL)
find_library(TORCH_PYTHON_LIBRARY torch_python PATHS "${TORCH_INSTALL_PREFIX}/lib" REQUIRED NO_DEFAULT_PATH)

add_library(alternator_torch INTERFACE)
target_link_libraries(alternator_torch INTERFACE ${TORCH_LIBRARIES} "${TORCH_PYTHON_LIBRARY}")
separate_arguments(ALTERNATOR_TORCH_FLAGS UNIX_COMMAND "${TORCH_CXX_FLAGS}")
target_compile_options(alternator_torch INTERFACE ${ALTERNATOR_TORCH_FLAGS})

# One precompiled header for all torch rooms: it is compiled once, not once a room.
file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/torch_pch.cpp" CONTENT "// Carries the shared precompiled header.\n")
add_library(alternator_torch_pch OBJECT "${PROJECT_BINARY_DIR}/torch_pch.cpp")
target_link_libraries(alternator_torch_pch PRIVATE Python::Module alternator_torch)
target_precompile_headers(alternator_torch_pch PRIVATE "${PROJECT_SOURCE_DIR}/cmake/torch_pch.h")
