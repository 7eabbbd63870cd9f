# SPDX-License-Identifier: Apache-2.0
# Sets prebuilt_source: the kernels that the library embeds, compiled by NVRTC while it is built. NVRTC
# comes from a CUDA toolkit or from pip's wheels; no GPU is needed.

set(GRAPHFEED_PREBUILT AUTO CACHE STRING "Embed compiled kernels: ON, OFF, AUTO (where an NVRTC is found)")
set(GRAPHFEED_PREBUILT_NVRTC "" CACHE STRING "libnvrtc.so files to try in this order, in place of a search")
set(GRAPHFEED_PREBUILT_CACHE "${PROJECT_BINARY_DIR}/prebuilt" CACHE PATH
    "Directory of compiled kernels, which several build trees may share")

# Version 12 before 13: a driver runs what its own major version or an older one compiled.
function(graphfeed_find_nvrtc result)
  find_package(Python QUIET COMPONENTS Interpreter)
  set(directories "")
  if(Python_EXECUTABLE)
    execute_process(
      COMMAND "${Python_EXECUTABLE}" -c "import sys; print(*sys.path, sep=';')"
      OUTPUT_VARIABLE entries OUTPUT_STRIP_TRAILING_WHITESPACE)
    foreach(entry IN LISTS entries)
      list(APPEND directories ${entry}/nvidia/cuda_nvrtc/lib ${entry}/nvidia/cu13/lib)
    endforeach()
  endif()
  foreach(toolkit $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)
    list(APPEND directories ${toolkit}/lib64 ${toolkit}/lib)
  endforeach()
  set(found $ENV{GRAPHFEED_NVRTC})
  foreach(name libnvrtc.so.12 libnvrtc.so.13)
    foreach(directory IN LISTS directories)
      if(EXISTS ${directory}/${name})
        list(APPEND found ${directory}/${name})
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

set(nvrtc_files ${GRAPHFEED_PREBUILT_NVRTC})
if(GRAPHFEED_PREBUILT AND NOT nvrtc_files)
  graphfeed_find_nvrtc(nvrtc_files)
endif()

if(GRAPHFEED_PREBUILT AND nvrtc_files)
  message(STATUS "Prebuilt kernels: with ${nvrtc_files}")
  add_executable(graphfeed_prebuild prebuild.cc $<TARGET_OBJECTS:graphfeed_compiling>)
  graphfeed_options(graphfeed_prebuild)
  target_include_directories(graphfeed_prebuild PRIVATE ${PROJECT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR})
  target_link_libraries(graphfeed_prebuild PRIVATE ${CMAKE_DL_LIBS} Threads::Threads)
  set(prebuilt_source ${CMAKE_CURRENT_BINARY_DIR}/prebuilt_kernels.cc)
  add_custom_command(
    OUTPUT ${prebuilt_source} ${prebuilt_source}.bin
    COMMAND ${CMAKE_COMMAND} -E env ASAN_OPTIONS=detect_leaks=0 $<TARGET_FILE:graphfeed_prebuild>
            ${prebuilt_source} ${GRAPHFEED_PREBUILT_CACHE} ${nvrtc_files}
    DEPENDS graphfeed_prebuild
    COMMENT "Compiling kernels for every family of architectures (a minute, once)"
    VERBATIM)
  set_source_files_properties(${prebuilt_source} PROPERTIES OBJECT_DEPENDS ${prebuilt_source}.bin)
elseif(GRAPHFEED_PREBUILT STREQUAL "AUTO" OR NOT GRAPHFEED_PREBUILT)
  if(GRAPHFEED_PREBUILT)
    message(STATUS "Prebuilt kernels: none, since no libnvrtc.so was found")
  endif()
  set(prebuilt_source prebuilt_none.cc)
else()
  message(FATAL_ERROR "GRAPHFEED_PREBUILT=${GRAPHFEED_PREBUILT} needs NVRTC 12.8 or newer: install a CUDA toolkit, "
                      "pip install nvidia-cuda-nvrtc-cu12, or name libnvrtc.so by GRAPHFEED_PREBUILT_NVRTC")
endif()
