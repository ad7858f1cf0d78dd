# Build conventions of every folder: compiler flags, and the functions that declare the library, tests and programs of a
# folder. The CMakeLists.txt of a folder only calls these functions.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS ON) # __int128
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

find_program(LOAM_CCACHE ccache)
if(LOAM_CCACHE)
  # ccache requires this sloppiness for precompiled headers, and -fpch-preprocess below.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
                                  CCACHE_SLOPPINESS=pch_defines,time_macros ${LOAM_CCACHE})
endif()

option(LOAM_ASSERTIONS "Development-tier assertions (LOAM_DCHECK)" ON)
option(LOAM_LTO "Link-time optimisation of the shipped programs" OFF)
option(LOAM_TESTS "Build the tests" ON)
set(LOAM_TEST_FLAGS "" CACHE STRING "Further compiler flags for the sources of tests themselves")
option(LOAM_PRECOMPILE "Precompile the headers of the standard library and of what nearly all programs or tests use" OFF)
option(LOAM_UNITY "Compile the sources of a target in batches: a cold build takes half the processor time" OFF)
set(LOAM_SANITIZER "" CACHE STRING "Empty, address (with undefined), thread or fuzz (address, undefined and coverage)")
add_custom_target(loam_tests)
add_custom_target(loam_fuzzers)

add_library(loam_flags INTERFACE)
target_include_directories(loam_flags INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>
                                                $<INSTALL_INTERFACE:include/loam>)
# -fstack-clash-protection: a large frame touches each of its pages, so that a frame on a fiber's stack cannot skip the
# guard page below the stack. Programs that use the installed client library are compiled with it, too.
target_compile_options(loam_flags INTERFACE -march=x86-64-v3 -mcx16 -fno-omit-frame-pointer -fstack-clash-protection)
target_link_libraries(loam_flags INTERFACE Threads::Threads)
# The report of a crash names the build id, by which a debugger finds the symbols of the program.
target_link_options(loam_flags INTERFACE LINKER:--build-id=sha1)

add_library(loam_warnings INTERFACE)
# -Wrestrict of g++ 12 gives false warnings about std::string's operator+ at -O3 (GCC bug 105651).
target_compile_options(loam_warnings INTERFACE -Wall -Wextra -Wconversion -Wshadow -Werror -Wno-restrict)
# clang does not know some of the disabled warnings of g++. std::stable_sort of libstdc++ 12 uses deprecated functions.
target_compile_options(loam_warnings INTERFACE
  $<$<CXX_COMPILER_ID:Clang>:-Wno-unknown-warning-option -Wno-deprecated-declarations>)

if(LOAM_UNITY)
  # In a batch g++ treats sources as headers, whose types should not contain types of anonymous namespaces.
  target_compile_options(loam_warnings INTERFACE -Wno-subobject-linkage)
endif()
if(LOAM_ASSERTIONS)
  target_compile_definitions(loam_flags INTERFACE LOAM_ASSERTIONS=1)
endif()
if(LOAM_SANITIZER STREQUAL "address")
  # A null pointer ends the program even without this check, which costs a tenth of the compile time.
  target_compile_options(loam_flags INTERFACE -fsanitize=address,undefined -fno-sanitize=null -fno-sanitize-recover=undefined)
  target_link_options(loam_flags INTERFACE -fsanitize=address,undefined)
elseif(LOAM_SANITIZER STREQUAL "thread")
  target_compile_options(loam_flags INTERFACE -fsanitize=thread)
  # g++ cannot see stand-alone fences under ThreadSanitizer; the code base uses none (house style).
  target_link_options(loam_flags INTERFACE -fsanitize=thread)
elseif(LOAM_SANITIZER STREQUAL "fuzz")
  target_compile_options(loam_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined)
  # Checks that spans stay in their buffer, even where the address sanitizer accepts the memory behind it.
  target_compile_definitions(loam_flags INTERFACE _GLIBCXX_ASSERTIONS=1)
  target_link_options(loam_flags INTERFACE -fsanitize=address,undefined)
elseif(LOAM_SANITIZER)
  message(FATAL_ERROR "LOAM_SANITIZER must be empty, address, thread or fuzz, not '${LOAM_SANITIZER}'")
endif()

# loam_precompiled(NAME KIND): NAME's sources are compiled after the precompiled header of their kind. One serves all
# targets whose flags are the same: library, test, program, and command for the libraries of a program's commands. Sources
# still include what they use: the lint, debug and fuzz read them without.
function(loam_precompiled name kind)
  if(LOAM_PRECOMPILE)
    target_precompile_headers(${name} REUSE_FROM loam_precompiled_${kind})
    target_compile_options(${name} PRIVATE -fpch-preprocess)
  endif()
endfunction()

function(loam_precompile kind)
  set(standard <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <deque> <functional> <map> <memory> <mutex>
      <optional> <random> <set> <span> <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector>)
  cmake_parse_arguments(arg "EXECUTABLE" "" "HEADERS;OPTIONS;DEPS" ${ARGN})
  set(name loam_precompiled_${kind})
  if(arg_EXECUTABLE)
    add_executable(${name} EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/cmake/link_test.cc)
  else()
    add_library(${name} STATIC EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/cmake/link_test.cc)
  endif()
  target_link_libraries(${name} PRIVATE loam_flags loam_warnings ${arg_DEPS})
  target_compile_options(${name} PRIVATE -fpch-preprocess ${arg_OPTIONS})
  target_precompile_headers(${name} PRIVATE ${standard} ${arg_HEADERS})
endfunction()

if(LOAM_PRECOMPILE)
  set(lto $<$<BOOL:${LOAM_LTO}>:-flto=auto>)
  loam_precompile(library OPTIONS ${lto})
  loam_precompile(command HEADERS <CLI/CLI.hpp> <nlohmann/json.hpp> OPTIONS ${lto})
  loam_precompile(program EXECUTABLE HEADERS <CLI/CLI.hpp> <nlohmann/json.hpp> OPTIONS ${lto})
  if(LOAM_TESTS)
    find_package(GTest REQUIRED)
    loam_precompile(test EXECUTABLE HEADERS <gtest/gtest.h> OPTIONS ${LOAM_TEST_FLAGS} DEPS GTest::gtest)
  endif()
endif()

# loam_batches(OUT NAME [APART b.cc …] SOURCES a.cc …): the files to compile for the sources of target NAME. With LOAM_UNITY
# these are files that include up to LOAM_BATCH_SOURCES sources each, so that headers are read, and templates instantiated,
# once a batch. APART names sources that must be compiled alone, because their file-local names collide with those of
# another.
#
# The batches lie in the build tree and include their sources relative to the source tree, so that ccache finds them in
# every clone.
set(LOAM_BATCH_SOURCES 8)
function(loam_batches out name)
  cmake_parse_arguments(arg "" "" "SOURCES;APART" ${ARGN})
  set(together ${arg_SOURCES})
  list(REMOVE_ITEM together ${arg_APART})
  list(LENGTH together count)
  if(NOT LOAM_UNITY OR count LESS 2)
    set(${out} ${arg_SOURCES} PARENT_SCOPE)
    return()
  endif()
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  math(EXPR batches "(${count} + ${LOAM_BATCH_SOURCES} - 1) / ${LOAM_BATCH_SOURCES}")
  set(files ${arg_APART})
  foreach(batch RANGE 1 ${batches})
    math(EXPR begin "(${batch} - 1) * ${count} / ${batches}")
    math(EXPR size "${batch} * ${count} / ${batches} - ${begin}")
    list(SUBLIST together ${begin} ${size} sources)
    list(TRANSFORM sources REPLACE "^(.+)$" "#include \"${folder}/\\1\"")
    list(JOIN sources "\n" CONTENT)
    set(file ${CMAKE_CURRENT_BINARY_DIR}/batches/${name}_${batch}.cc)
    file(CONFIGURE OUTPUT ${file} CONTENT "@CONTENT@\n" @ONLY)
    list(APPEND files ${file})
  endforeach()
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# loam_library(NAME SOURCES a.cc … [APART b.cc …] [DEPS …] [PRIVATE_DEPS …] [SIM] [PRECOMPILED command])
#
# Declares the static library of one folder. With SIM it is declared twice: NAME uses the real environment, NAME_sim
# has the same source files compiled against the simulator's (common/base/env.h). A SIM library may only depend on SIM
# libraries and on libraries outside this project; NAME_sim links their variants for the simulator. A program never has both.
# NAME_link_test links all of NAME with only its declared dependencies. An undefined symbol there shows a dependency
# that is not declared or points upward.
function(loam_library name)
  cmake_parse_arguments(arg "SIM" "PRECOMPILED" "SOURCES;APART;DEPS;PRIVATE_DEPS" ${ARGN})
  loam_batches(sources ${name} SOURCES ${arg_SOURCES} APART ${arg_APART})
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC loam_flags ${arg_DEPS} PRIVATE $<BUILD_INTERFACE:loam_warnings> ${arg_PRIVATE_DEPS})
  if(LOAM_LTO)
    target_compile_options(${name} PRIVATE -flto=auto)
  endif()
  if(NOT arg_PRECOMPILED)
    set(arg_PRECOMPILED library)
  endif()
  loam_precompiled(${name} ${arg_PRECOMPILED})
  set_target_properties(${name} PROPERTIES FOLDER ${CMAKE_CURRENT_SOURCE_DIR})
  if(LOAM_TESTS AND NOT LOAM_SANITIZER)
    add_executable(${name}_link_test ${CMAKE_SOURCE_DIR}/cmake/link_test.cc)
    target_link_libraries(${name}_link_test PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,${name}>)
    add_dependencies(loam_tests ${name}_link_test)
  endif()
  if(arg_SIM)
    foreach(kind DEPS PRIVATE_DEPS)
      set(${kind}_sim "")
      foreach(dep ${arg_${kind}})
        if(dep MATCHES "^loam_")
          list(APPEND ${kind}_sim ${dep}_sim)
        else()
          list(APPEND ${kind}_sim ${dep})
        endif()
      endforeach()
    endforeach()
    add_library(${name}_sim STATIC EXCLUDE_FROM_ALL ${sources})
    target_compile_definitions(${name}_sim PUBLIC LOAM_ENV_SIM=1)
    target_link_libraries(${name}_sim PUBLIC loam_flags ${DEPS_sim} PRIVATE $<BUILD_INTERFACE:loam_warnings> ${PRIVATE_DEPS_sim})
    loam_precompiled(${name}_sim library)
  endif()
endfunction()

# loam_program(NAME SOURCES … [APART …] DEPS … COMPONENT server|tools [JEMALLOC])
#
# An executable that ships, installed with that component. Only these use link-time optimisation, because of its cost.
# With JEMALLOC the program uses jemalloc unless a sanitizer replaces malloc. This is for programs that run servers; the
# client library leaves the choice of malloc to the application.
function(loam_program name)
  cmake_parse_arguments(arg "JEMALLOC" "COMPONENT" "SOURCES;APART;DEPS" ${ARGN})
  loam_batches(sources ${name} SOURCES ${arg_SOURCES} APART ${arg_APART})
  add_executable(${name} ${sources})
  if(arg_JEMALLOC AND NOT LOAM_SANITIZER)
    if(NOT TARGET PkgConfig::LOAM_JEMALLOC)
      pkg_check_modules(LOAM_JEMALLOC REQUIRED IMPORTED_TARGET GLOBAL jemalloc)
    endif()
    target_link_libraries(${name} PRIVATE PkgConfig::LOAM_JEMALLOC)
  endif()
  target_link_libraries(${name} PRIVATE loam_flags loam_warnings ${arg_DEPS})
  loam_precompiled(${name} program)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  if(LOAM_LTO)
    target_compile_options(${name} PRIVATE -flto=auto)
    # Only link-time optimisation sees two types with one name; without the error, one would use the other's functions.
    target_link_options(${name} PRIVATE -flto=auto -fuse-linker-plugin -Werror=odr)
  endif()
  install(TARGETS ${name} RUNTIME DESTINATION bin COMPONENT ${arg_COMPONENT})
endfunction()

# loam_module(NAME EXPORTS file.map SOURCES … [APART …] DEPS …)
#
# A shared object that a program loads on demand, with all of our code that it uses inside. The linker script EXPORTS
# lists the symbols that the program sees. loam_tests builds it.
function(loam_module name)
  cmake_parse_arguments(arg "" "EXPORTS" "SOURCES;APART;DEPS" ${ARGN})
  set(exports ${CMAKE_CURRENT_SOURCE_DIR}/${arg_EXPORTS})
  loam_batches(sources ${name} SOURCES ${arg_SOURCES} APART ${arg_APART})
  add_library(${name} MODULE ${sources})
  target_link_libraries(${name} PRIVATE loam_flags loam_warnings ${arg_DEPS})
  target_link_options(${name} PRIVATE LINKER:-Bsymbolic,--version-script=${exports})
  set_target_properties(${name} PROPERTIES PREFIX "" LINK_DEPENDS ${exports}
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/loam)
  install(TARGETS ${name} LIBRARY DESTINATION lib/loam COMPONENT rdma)
  add_dependencies(loam_tests ${name})
endfunction()

# loam_test_program(NAME SOURCES … [APART …] DEPS …)
#
# An executable that script tests run; loam_tests builds it with them. Without tests only its own target builds it.
function(loam_test_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;APART;DEPS" ${ARGN})
  if(NOT LOAM_SANITIZER)
    loam_batches(sources ${name} SOURCES ${arg_SOURCES} APART ${arg_APART})
    add_executable(${name} ${sources})
    target_link_libraries(${name} PRIVATE loam_flags loam_warnings ${arg_DEPS})
    if(NOT LOAM_TESTS)
      set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
  endif()
endfunction()

# loam_test(NAME SOURCES … [APART …] DEPS … LABELS unit|stress|sim|integration|rdma … [TIMEOUT seconds] [SANITIZE address|thread …] [LONG])
#
# One test program a folder and label; every case in it is a ctest test of its own, so that skips are seen one by one.
# Under a sanitizer preset only the programs that name that sanitizer exist, and their cases' names begin with "asan." or
# "tsan.". The target loam_tests builds all test programs of a preset. Without TIMEOUT the limit is the one given to ctest
# (Makefile); tests labelled stress and sim leave it out, because `make stress` runs them for longer. LONG: the program's own sources
# calculate for seconds, so they are optimised under asan, too, which compiles those of other tests with -O0.
function(loam_test name)
  cmake_parse_arguments(arg "LONG" "TIMEOUT" "SOURCES;APART;DEPS;LABELS;SANITIZE" ${ARGN})
  if(NOT LOAM_TESTS)
    return()
  endif()
  if(LOAM_SANITIZER AND NOT LOAM_SANITIZER IN_LIST arg_SANITIZE)
    return()
  endif()
  find_package(GTest REQUIRED)
  include(GoogleTest)
  loam_batches(sources ${name} SOURCES ${arg_SOURCES} APART ${arg_APART})
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE loam_flags loam_warnings ${arg_DEPS} GTest::gtest GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${LOAM_TEST_FLAGS})
  if(arg_LONG AND LOAM_SANITIZER STREQUAL "address")
    target_compile_options(${name} PRIVATE -O1)  # the precompiled header was built with the flags of other tests
  else()
    loam_precompiled(${name} test)
  endif()
  add_dependencies(loam_tests ${name})
  set(prefix "")
  set(properties LABELS "${arg_LABELS}")
  if(arg_TIMEOUT)
    list(APPEND properties TIMEOUT ${arg_TIMEOUT})
  endif()
  if(LOAM_SANITIZER STREQUAL "address")
    set(prefix asan.)
    list(APPEND properties ENVIRONMENT UBSAN_OPTIONS=print_stacktrace=1)
  elseif(LOAM_SANITIZER STREQUAL "thread")
    set(prefix tsan.)
    list(APPEND properties ENVIRONMENT TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1)
  endif()
  # On a loaded machine, a program built for ThreadSanitizer needs long to list its cases.
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_PREFIX "${prefix}${name}:"
                       PROPERTIES ${properties})
endfunction()

# loam_script_test(NAME SCRIPT file.py LABELS … [PROGRAMS target …] [ARGUMENTS …] [TIMEOUT seconds] [SERIAL])
#
# A test that is a Python program, run from the root of the source tree; SERIAL keeps other tests from running beside it.
# The paths of PROGRAMS are its arguments, then ARGUMENTS; loam_tests builds the programs.
# Scripts gain nothing from a sanitizer, so they are tests of the other presets only.
function(loam_script_test name)
  cmake_parse_arguments(arg "SERIAL" "SCRIPT;TIMEOUT" "LABELS;PROGRAMS;ARGUMENTS" ${ARGN})
  if(NOT LOAM_TESTS OR LOAM_SANITIZER)
    return()
  endif()
  set(paths "")
  foreach(program ${arg_PROGRAMS})
    list(APPEND paths $<TARGET_FILE:${program}>)
    add_dependencies(loam_tests ${program})
  endforeach()
  add_test(NAME ${name} COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/${arg_SCRIPT} ${paths} ${arg_ARGUMENTS}
           WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" RUN_SERIAL "${arg_SERIAL}" SKIP_RETURN_CODE 77)
  if(arg_TIMEOUT)
    set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT})
  endif()
endfunction()

# loam_fuzzer(NAME SOURCES a.cc … DEPS …)
#
# A libFuzzer target; exists in the preset fuzz alone, where loam_fuzzers builds all of them. Its test fuzz.NAME runs it
# for two seconds from its corpus (tests/fuzz/run.py).
function(loam_fuzzer name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  if(NOT LOAM_SANITIZER STREQUAL "fuzz")
    # For the lint only, which reads sources with a compile command.
    add_library(${name} OBJECT EXCLUDE_FROM_ALL ${arg_SOURCES})
    target_link_libraries(${name} PRIVATE loam_flags loam_warnings ${arg_DEPS})
    return()
  endif()
  add_executable(${name} EXCLUDE_FROM_ALL ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE loam_flags loam_warnings ${arg_DEPS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  add_dependencies(loam_fuzzers ${name})
  add_test(NAME fuzz.${name}
           COMMAND python3 ${CMAKE_SOURCE_DIR}/tests/fuzz/run.py --build ${CMAKE_BINARY_DIR} --seconds 2 --fixed-seed ${name}
           WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz FIXTURES_REQUIRED fuzz_corpus)
endfunction()
