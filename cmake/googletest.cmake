# SPDX-License-Identifier: Apache-2.0
# GTest::gtest_main: installed, else built from the system's sources, else from the published release.

# A library built elsewhere lacks the sanitizer's instrumentation and would report false races.
if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
  find_package(GTest QUIET)
endif()
if(NOT TARGET GTest::gtest_main)
  include(FetchContent)
  if(EXISTS /usr/src/googletest/CMakeLists.txt)
    FetchContent_Declare(googletest SOURCE_DIR /usr/src/googletest)
  else()
    FetchContent_Declare(googletest URL https://github.com/google/googletest/archive/refs/tags/v1.17.0.tar.gz
                         URL_HASH SHA256=65fab701d9829d38cb77c14acdc431d2108bfdbf8979e40eb8ae567edf10b27c)
  endif()
  set(CMAKE_POLICY_VERSION_MINIMUM 3.5)  # googletest 1.11 names an older one than CMake 4 accepts
  set(INSTALL_GTEST OFF CACHE INTERNAL "")
  set(BUILD_GMOCK OFF CACHE INTERNAL "")
  FetchContent_MakeAvailable(googletest)
  foreach(library gtest gtest_main)
    if(NOT TARGET GTest::${library})
      add_library(GTest::${library} ALIAS ${library})
    endif()
  endforeach()
endif()
