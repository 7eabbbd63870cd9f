# SPDX-License-Identifier: Apache-2.0
# Optional targets: format (rewrites), format-check, tidy. They need clang-format and clang-tidy.

set(roots "include src tests benchmarks examples")
set(list_files "find ${roots} -name '*.h' -o -name '*.cc'")

find_program(CLANG_FORMAT clang-format)
if(CLANG_FORMAT)
  foreach(target_options "format|-i" "format-check|--dry-run --Werror")
    string(REPLACE "|" ";" target_options ${target_options})
    list(GET target_options 0 target)
    list(GET target_options 1 options)
    add_custom_target(
      ${target}
      COMMAND sh -c "${list_files} | xargs '${CLANG_FORMAT}' ${options}"
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
      VERBATIM)
  endforeach()
endif()

find_program(RUN_CLANG_TIDY NAMES run-clang-tidy)
if(RUN_CLANG_TIDY)
  add_custom_target(
    tidy
    COMMAND ${RUN_CLANG_TIDY} -quiet -p ${PROJECT_BINARY_DIR} "^${PROJECT_SOURCE_DIR}/(src|tests|benchmarks|examples)/"
    VERBATIM)
endif()
