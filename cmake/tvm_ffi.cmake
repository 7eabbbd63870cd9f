# SPDX-License-Identifier: Apache-2.0
# The module that Python loads: the foreign calls and the core, exporting __tvm_ffi_* and nothing else.
# It names libtvm_ffi.so without a path: `import tvm_ffi` has loaded it before this module is opened.

find_package(Python REQUIRED COMPONENTS Interpreter)
execute_process(
  COMMAND "${Python_EXECUTABLE}" -m tvm_ffi.config --cmakedir
  OUTPUT_VARIABLE tvm_ffi_ROOT
  OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE tvm_ffi_status)
if(NOT tvm_ffi_status EQUAL 0)
  message(FATAL_ERROR "GRAPHFEED_TVM_FFI needs the Python package apache-tvm-ffi; ${Python_EXECUTABLE} has none")
endif()
find_package(tvm_ffi CONFIG REQUIRED)

add_library(graphfeed_tvm_ffi MODULE src/tvm_ffi.cc src/calls.cc src/generate_calls.cc
            src/python_arguments.cc)
graphfeed_options(graphfeed_tvm_ffi)
target_include_directories(graphfeed_tvm_ffi PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(graphfeed_tvm_ffi PRIVATE graphfeed tvm_ffi::header tvm_ffi::shared)
# Messages of its headers name files: not where this machine keeps them.
get_filename_component(tvm_ffi_package ${tvm_ffi_ROOT}/../../.. ABSOLUTE)
target_compile_options(graphfeed_tvm_ffi PRIVATE -ffile-prefix-map=${tvm_ffi_package}=tvm_ffi
                                                 -ffile-prefix-map=${PROJECT_SOURCE_DIR}=.)
set(exports ${PROJECT_SOURCE_DIR}/cmake/tvm_ffi_exports.map)
target_link_options(graphfeed_tvm_ffi PRIVATE "LINKER:--version-script=${exports}")
set_target_properties(graphfeed_tvm_ffi PROPERTIES SKIP_BUILD_RPATH ON LINK_DEPENDS ${exports})
install(TARGETS graphfeed_tvm_ffi LIBRARY DESTINATION lib COMPONENT python)
