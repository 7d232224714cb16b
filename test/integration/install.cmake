# The installed package, used by a project that knows nothing of this tree.
add_test(NAME integration_install
         COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DBUILD=${CMAKE_BINARY_DIR} -DMPIEXEC=${MPIEXEC_EXECUTABLE}
                 -DCOMPILER=${CMAKE_CXX_COMPILER} "-DLAUNCHER=${CCACHE}" -P ${CMAKE_CURRENT_LIST_DIR}/install_test.cmake)
set_tests_properties(integration_install PROPERTIES TIMEOUT 900 PROCESSORS 2 LABELS integration
  ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;CCACHE_NOHASHDIR=1"
  ENVIRONMENT_MODIFICATION "LD_LIBRARY_PATH=unset:;Torch_DIR=unset:")
