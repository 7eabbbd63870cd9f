# SPDX-License-Identifier: Apache-2.0
# What every target of this project shares.

# graphfeed_options(<target>): language level, position-independent code, warnings.
function(graphfeed_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  if(GRAPHFEED_STRICT)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Werror)
  endif()
endfunction()

# graphfeed_embed(<output.cc> <header>...): a source that holds the headers' text, for NVRTC.
function(graphfeed_embed output)
  list(JOIN ARGN "|" headers)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} "-DHEADERS=${headers}" "-DOUTPUT=${output}" "-DROOT=${CMAKE_CURRENT_SOURCE_DIR}"
            -P ${PROJECT_SOURCE_DIR}/cmake/embed_sources.cmake
    DEPENDS ${ARGN} ${PROJECT_SOURCE_DIR}/cmake/embed_sources.cmake
    WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
    COMMENT "Embedding device code"
    VERBATIM)
endfunction()
