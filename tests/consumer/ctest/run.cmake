# SPDX-License-Identifier: Apache-2.0
# One consumer test: HOW is find_package or add_subdirectory. Starts from an empty folder each time.
cmake_policy(VERSION 3.22)

set(work ${BINARY_DIR}/consumer/${HOW})
file(REMOVE_RECURSE ${work})
if(HOW STREQUAL "find_package")
  execute_process(COMMAND ${CMAKE_COMMAND} --install ${BINARY_DIR} --config ${CONFIG} --component dev
                          --prefix ${work}/prefix COMMAND_ERROR_IS_FATAL ANY)
  set(how_options -DCMAKE_PREFIX_PATH=${work}/prefix)
else()
  set(how_options -DGRAPHFEED_SOURCE_DIR=${SOURCE_DIR} -DBUILD_SHARED_LIBS=ON -DGRAPHFEED_PREBUILT=${PREBUILT}
                  -DGRAPHFEED_PREBUILT_CACHE=${PREBUILT_CACHE})
endif()

execute_process(
  COMMAND ${CMAKE_COMMAND} -S ${SOURCE_DIR}/tests/consumer -B ${work}/build -G ${GENERATOR}
          -DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM} -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_CXX_FLAGS=${CXX_FLAGS}
          -DCMAKE_BUILD_TYPE=Debug ${how_options} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${work}/build COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${work}/build/consumer COMMAND_ERROR_IS_FATAL ANY)
