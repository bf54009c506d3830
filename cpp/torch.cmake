# aoti_torch: the libraries and headers of an installed torch.
#
# Torch's own CMake package asks for a whole CUDA toolkit when torch was built for CUDA; its libraries do not.

if(NOT EXISTS "${TORCH_DIR}/include/ATen/ATen.h" OR NOT EXISTS "${TORCH_DIR}/lib/libtorch.so")
  message(FATAL_ERROR "TORCH_DIR='${TORCH_DIR}' is no installed torch (no include/ATen/ATen.h, lib/libtorch.so)")
endif()

foreach(name torch torch_cpu c10)
  add_library(aoti_torch_${name} SHARED IMPORTED)
  set_target_properties(aoti_torch_${name} PROPERTIES
    IMPORTED_LOCATION "${TORCH_DIR}/lib/lib${name}.so"
  )
endforeach()

# Which of libstdc++'s two ABIs torch was built with shows in the names that it exports.
file(STRINGS "${TORCH_DIR}/lib/libc10.so" new_abi REGEX "__cxx1112basic_string" LIMIT_COUNT 1)
if(new_abi)
  set(cxx11_abi 1)
else()
  set(cxx11_abi 0)
endif()

add_library(aoti_torch INTERFACE)
target_include_directories(aoti_torch SYSTEM INTERFACE
  "${TORCH_DIR}/include"
  "${TORCH_DIR}/include/torch/csrc/api/include"
)
target_compile_definitions(aoti_torch INTERFACE _GLIBCXX_USE_CXX11_ABI=${cxx11_abi})
# A compiled model needs libtorch.so to be loaded already, though nothing here names a symbol of it.
# CUDA comes the same way: its libraries register the loader for CUDA packages as they load.
target_link_options(aoti_torch INTERFACE -Wl,--no-as-needed)
target_link_libraries(aoti_torch INTERFACE aoti_torch_torch aoti_torch_torch_cpu aoti_torch_c10 dl)
