# Functions that make the project's own targets, so that each folder's CMakeLists.txt is a list of names.
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers need these relaxations, or ccache never hits.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()

# Position-independent code everywhere by one flag, so that programs and libraries can share the precompiled header.
add_compile_options(-fPIC)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
endif()
if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
endif()
# A folder compiles as one file: what LibTorch's headers cost is paid once a folder instead of once a file, which makes a cold
# build three times faster. Off (-DCMAKE_UNITY_BUILD=OFF) suits work on one file.
if(NOT DEFINED CMAKE_UNITY_BUILD)
  set(CMAKE_UNITY_BUILD ON)
endif()
set(CMAKE_UNITY_BUILD_BATCH_SIZE 0)
if(CMAKE_UNITY_BUILD)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)  # GCC takes the included sources for headers
endif()
# GCC 12 warns of impossible lengths inside std::string (bug 105651).
set(LOCKSTEP_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wno-stringop-overflow -Wno-restrict -Werror)
set(CMAKE_BUILD_RPATH ${LOCKSTEP_TORCH_RPATH})

# Includes read "lockstep/comm/world.h" in the tree as when installed: one symlink does it.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include)
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/lib ${CMAKE_BINARY_DIR}/include/lockstep SYMBOLIC)

# lockstep_library(NAME SOURCES … [DEPENDS folder-or-target …] [TORCH])
# NAME is the folder; targets of other folders are named in DEPENDS as lockstep_<folder>.
function(lockstep_library name)
  cmake_parse_arguments(arg "TORCH" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(lockstep_${name} STATIC ${arg_SOURCES})
  add_library(Lockstep::${name} ALIAS lockstep_${name})
  set_target_properties(lockstep_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(lockstep_${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/include>
                             $<INSTALL_INTERFACE:include>)
  target_compile_features(lockstep_${name} PUBLIC cxx_std_20)
  target_compile_options(lockstep_${name} PRIVATE ${LOCKSTEP_WARNINGS})
  target_link_libraries(lockstep_${name} PUBLIC ${arg_DEPENDS})
  if(arg_TORCH)
    target_link_libraries(lockstep_${name} PUBLIC lockstep::torch lockstep::fmt lockstep::mpi nlohmann_json::nlohmann_json)
    target_precompile_headers(lockstep_${name} REUSE_FROM lockstep_pch)
  endif()
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LIBRARIES lockstep_${name})
endfunction()

# lockstep_test(NAME SOURCES … LIBS … [TORCH] [RANKS 1 2 …] [TIMEOUT s] [LABELS …])
# One doctest program. Without RANKS it runs as it is; with RANKS it runs once a world size under mpirun, and its main
# must come from test/mpi_main.cpp (added here). Tests of folders without LibTorch get the label torch_free.
function(lockstep_test name)
  cmake_parse_arguments(arg "TORCH" "TIMEOUT" "SOURCES;LIBS;RANKS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(arg_RANKS)
    set(main lockstep_mpi_main)
  else()
    set(main lockstep_plain_main)
  endif()
  add_executable(test_${name} ${arg_SOURCES})
  target_compile_options(test_${name} PRIVATE ${LOCKSTEP_WARNINGS})
  target_include_directories(test_${name} PRIVATE ${CMAKE_SOURCE_DIR}/test)
  target_link_libraries(test_${name} PRIVATE ${main} ${arg_LIBS})
  if(arg_TORCH)
    target_precompile_headers(test_${name} REUSE_FROM lockstep_pch)
    target_link_libraries(test_${name} PRIVATE lockstep::torch lockstep::fmt lockstep::mpi nlohmann_json::nlohmann_json)
  else()
    list(APPEND arg_LABELS torch_free)
  endif()
  if(NOT arg_RANKS)
    add_test(NAME ${name} COMMAND test_${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
  endif()
  foreach(ranks IN LISTS arg_RANKS)
    lockstep_mpi_case(${name}_np${ranks} RANKS ${ranks} TIMEOUT ${arg_TIMEOUT} LABELS ${arg_LABELS} mpi
                      COMMAND $<TARGET_FILE:test_${name}>)
  endforeach()
endfunction()

# lockstep_mpi_case(NAME RANKS n COMMAND program args… [TIMEOUT s] [LABELS …]): one mpirun in ctest.
function(lockstep_mpi_case name)
  cmake_parse_arguments(arg "" "RANKS;TIMEOUT" "COMMAND;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe -n ${arg_RANKS} ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" PROCESSORS ${arg_RANKS}
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1")
endfunction()
