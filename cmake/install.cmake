# SPDX-License-Identifier: Apache-2.0
# Headers, library and package files, so that find_package(graphfeed) works.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/graphfeed)

install(
  TARGETS graphfeed
  EXPORT graphfeedTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/graphfeed DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
install(EXPORT graphfeedTargets NAMESPACE graphfeed:: DESTINATION ${package_dir} COMPONENT dev)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/graphfeedConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/graphfeedConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/graphfeedConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/graphfeedConfig.cmake ${PROJECT_BINARY_DIR}/graphfeedConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT dev)
