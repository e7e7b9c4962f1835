// libgyre_cuda.so.0: the images of the CUDA kernels as a library of their own, for packages in
// which most users have no GPU. It has one function. Its types are C's, as the two libraries may be
// built with different C++ libraries.
#pragma once

namespace gyre::cuda {

// KernelImage and its ImageOrigin (kernel_name.h).
struct ExportedImage {
  const char* row;
  const void* data;
  int release;
  const int* code;
  int code_count;
  int ptx, ptx_release;
};

// They live as long as the library is loaded.
struct ExportedImages {
  const char* version;  // of Gyre: "0.2.0". Kernels serve the release that they are of
  const ExportedImage* images;
  int count;
};

inline constexpr const char* images_library = "libgyre_cuda.so.0";
inline constexpr const char* export_images_symbol = "gyre_cuda_images";
using ExportImages = ExportedImages (*)();

}  // namespace gyre::cuda
