#include "lib/base/owned.h"

#include "lib/base/descriptor_mark.h"

namespace gyre {

void FileDescriptorTraits::close(int descriptor) {
  if (descriptor_mark_stands()) ::close(descriptor);
}

int FileDescriptorTraits::adopt(int descriptor) { return above_standard_streams(descriptor); }

}  // namespace gyre
