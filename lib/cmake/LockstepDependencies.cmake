# Third-party packages as imported targets. Also read by the installed package's configuration.
# lockstep::torch is libtorch_cpu and libc10 alone: find_package(Torch) would insist on a CUDA toolkit
# with the CUDA wheel, and would link libtorch_cuda, which costs every CPU rank 350 MB at start-up.
include(CMakeFindDependencyMacro)

# MPI: the C bindings only.
find_package(MPI REQUIRED COMPONENTS C)
find_package(Threads REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(HDF5 REQUIRED COMPONENTS C)
find_package(nlohmann_json REQUIRED)

if(NOT TARGET lockstep::hdf5)
  add_library(lockstep::hdf5 INTERFACE IMPORTED)
  target_include_directories(lockstep::hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
  target_link_libraries(lockstep::hdf5 INTERFACE ${HDF5_C_LIBRARIES})
endif()
if(NOT TARGET lockstep::mpi)
  add_library(lockstep::mpi INTERFACE IMPORTED)
  target_compile_definitions(lockstep::mpi INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  target_link_libraries(lockstep::mpi INTERFACE MPI::MPI_C)
endif()

# LibTorch: -DTorch_DIR=... or the environment's Torch_DIR (…/torch/share/cmake/Torch or the torch folder), else the
# virtual environment that launch/setup.sh makes.
if(NOT LOCKSTEP_TORCH_ROOT)
  set(candidates ${Torch_DIR} $ENV{Torch_DIR})
  file(GLOB from_venv ${CMAKE_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/torch)
  list(APPEND candidates ${from_venv})
  foreach(dir IN LISTS candidates)
    foreach(up "" /.. /../../..)
      get_filename_component(root "${dir}${up}" ABSOLUTE)
      if(EXISTS ${root}/lib/libtorch_cpu.so AND NOT LOCKSTEP_TORCH_ROOT)
        set(LOCKSTEP_TORCH_ROOT ${root} CACHE PATH "Folder of LibTorch (with include/ and lib/)")
      endif()
    endforeach()
  endforeach()
endif()
if(LOCKSTEP_TORCH_ROOT AND NOT TARGET lockstep::torch)
  foreach(name torch_cpu c10)
    add_library(lockstep::${name} SHARED IMPORTED)
    set_target_properties(lockstep::${name} PROPERTIES IMPORTED_LOCATION ${LOCKSTEP_TORCH_ROOT}/lib/lib${name}.so
                          IMPORTED_NO_SONAME FALSE)
  endforeach()
  add_library(lockstep::torch INTERFACE IMPORTED)
  target_include_directories(lockstep::torch SYSTEM INTERFACE
    ${LOCKSTEP_TORCH_ROOT}/include ${LOCKSTEP_TORCH_ROOT}/include/torch/csrc/api/include)
  target_link_libraries(lockstep::torch INTERFACE lockstep::torch_cpu lockstep::c10 Threads::Threads)
  # The CPU wheel's libtorch_cpu needs these two small CUDA libraries (profiler), found beside the torch folder.
  get_filename_component(LOCKSTEP_SITE_PACKAGES ${LOCKSTEP_TORCH_ROOT} DIRECTORY)
  set(LOCKSTEP_TORCH_RPATH ${LOCKSTEP_TORCH_ROOT}/lib)
  foreach(dir cu13 nccl cudnn cusparselt nvshmem)
    list(APPEND LOCKSTEP_TORCH_RPATH ${LOCKSTEP_SITE_PACKAGES}/nvidia/${dir}/lib)
  endforeach()
  foreach(dir IN LISTS LOCKSTEP_TORCH_RPATH)
    target_link_options(lockstep::torch INTERFACE -Wl,-rpath-link,${dir})
  endforeach()
endif()

# {fmt}: the headers that LibTorch brings, so that two versions never meet. Its compiled part is lib/core/fmt.cpp.
if(NOT LOCKSTEP_TORCH_ROOT)
  message(FATAL_ERROR "LibTorch not found (its headers bring {fmt}). Run launch/setup.sh, or give -DTorch_DIR=<folder of torch>.")
endif()
if(NOT TARGET lockstep::fmt)
  add_library(lockstep::fmt INTERFACE IMPORTED)
  target_include_directories(lockstep::fmt SYSTEM INTERFACE ${LOCKSTEP_TORCH_ROOT}/include)
endif()
