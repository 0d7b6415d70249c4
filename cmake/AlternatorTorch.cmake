# Finds the torch that the build interpreter imports, as the interface library `alternator_torch`.
# Without torch's CMake files: those of a CUDA build require the CUDA toolkit, of which nothing is used here.
execute_process(
  COMMAND "${Python_EXECUTABLE}" -c "import os, torch; print(os.path.dirname(torch.__file__))"
  OUTPUT_VARIABLE ALTERNATOR_TORCH_ROOT
  OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE ALTERNATOR_TORCH_RESULT
  ERROR_QUIET)
if(NOT ALTERNATOR_TORCH_RESULT EQUAL 0)
  message(FATAL_ERROR "torch is not importable from ${Python_EXECUTABLE}: install torch==2.13.0 there, "
                      "or configure with -DALTERNATOR_TORCH=OFF")
endif()

add_library(alternator_torch INTERFACE)
foreach(name torch torch_cpu c10 torch_python)
  find_library(ALTERNATOR_LIB_${name} ${name} PATHS "${ALTERNATOR_TORCH_ROOT}/lib" REQUIRED NO_DEFAULT_PATH)
  target_link_libraries(alternator_torch INTERFACE "${ALTERNATOR_LIB_${name}}")
endforeach()
target_include_directories(alternator_torch SYSTEM INTERFACE "${ALTERNATOR_TORCH_ROOT}/include"
                                                             "${ALTERNATOR_TORCH_ROOT}/include/torch/csrc/api/include")
target_compile_definitions(alternator_torch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED USE_RPC USE_TENSORPIPE)

# One precompiled header for all torch rooms: it is compiled once, not once per room.
file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/torch_pch.cpp" CONTENT "// Carries the shared precompiled header.\n")
add_library(alternator_torch_pch OBJECT "${PROJECT_BINARY_DIR}/torch_pch.cpp")
target_link_libraries(alternator_torch_pch PRIVATE Python::Module alternator_torch)
target_precompile_headers(alternator_torch_pch PRIVATE "${PROJECT_SOURCE_DIR}/cmake/torch_pch.h")
