# Install rules: the program, the GPU plugin, the libraries, and the package that find_package(Lockstep) reads.
#   cmake --install build/release --prefix /opt/lockstep
# Nothing installed refers to the source or the build folder. LibTorch is not copied: its folder is remembered, and
# -DTorch_DIR gives another.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep)

get_property(libraries GLOBAL PROPERTY LOCKSTEP_LIBRARIES)
install(TARGETS ${libraries} EXPORT LockstepTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT LockstepTargets NAMESPACE Lockstep:: DESTINATION ${package})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/lib/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep
        FILES_MATCHING PATTERN "*.h" PATTERN cmake EXCLUDE)

configure_package_config_file(${CMAKE_SOURCE_DIR}/lib/cmake/LockstepConfig.cmake.in
  ${CMAKE_BINARY_DIR}/LockstepConfig.cmake INSTALL_DESTINATION ${package} PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/LockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/LockstepConfig.cmake ${CMAKE_BINARY_DIR}/LockstepConfigVersion.cmake
              ${CMAKE_SOURCE_DIR}/lib/cmake/LockstepDependencies.cmake
        DESTINATION ${package})

# Without these an installed program would look for LibTorch in the folders of the linker alone.
if(TARGET lockstep)
  set_target_properties(lockstep PROPERTIES INSTALL_RPATH "${LOCKSTEP_TORCH_RPATH}")
  install(TARGETS lockstep RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET lockstep_cuda)
  set_target_properties(lockstep_cuda PROPERTIES INSTALL_RPATH "${LOCKSTEP_TORCH_RPATH}")
  install(TARGETS lockstep_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
