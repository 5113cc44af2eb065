# Compiler settings, and the two kinds of target that the floors are made of.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

find_program(CLIKART_CCACHE ccache)
if(CLIKART_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CLIKART_CCACHE})
endif()

# One baseline for every file: an ISA above it exists only in generated code and in functions that are chosen by
# CPUID. Results are defined to the bit, so the compiler may not contract a multiply and an add on its own.
add_library(clikart_options INTERFACE)
target_compile_options(clikart_options INTERFACE -Wall -Wextra -Wshadow -Werror -ffp-contract=off)
if(CLIKART_SANITIZE)
  # GCC 12 takes a sanitizer's own checks for uses of uninitialized members of std::optional.
  target_compile_options(clikart_options INTERFACE -fsanitize=${CLIKART_SANITIZE} -fno-omit-frame-pointer
                                                   -Wno-maybe-uninitialized)
  target_link_options(clikart_options INTERFACE -fsanitize=${CLIKART_SANITIZE})
endif()

# clikart_floor(name SOURCES ... DEPS ...): a floor's library. Its headers are <floor>/include, its
# sources see only the floors it links.
function(clikart_floor name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>
                             PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE $<BUILD_INTERFACE:clikart_options> ${ARG_PRIVATE_DEPS})
endfunction()

# clikart_test(name SOURCES ... DEPS ...): a GoogleTest program, in ctest under its name.
function(clikart_test name)
  if(NOT CLIKART_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_SOURCES)
    return()
  endif()
  # Whatever a test compiles stays out of the cache of the user who runs it.
  add_executable(${name} ${ARG_SOURCES} ${PROJECT_SOURCE_DIR}/tests/private_cache.cc)
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} clikart_options GTest::gmock_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 900 LABELS "${ARG_LABELS}")
endfunction()

if(CLIKART_BUILD_TESTS)
  enable_testing()
endif()
