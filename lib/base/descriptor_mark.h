// A mark among the process's descriptors, which shows that the program has not closed them. A
// program that closes all descriptors that it does not know (closefrom) also closes the mark. From
// then on the library's descriptor numbers may be somebody else's files, so it neither closes nor
// writes them. Process-wide, as descriptors are.
#pragma once

#include "lib/base/status.h"

namespace gyre {

// The number of a descriptor that the library keeps. Where a program has closed its standard
// streams, the kernel gives their numbers out again, and what somebody prints would go into a file
// of ours: those are moved up. -1, and errno, if no number is left.
int above_standard_streams(int descriptor);
// Before the library keeps descriptors. Only a forked child can set it anew.
Status set_descriptor_mark();
// True without a mark. One system call.
bool descriptor_mark_stands();
// What to tell the user where it has gone.
Status descriptors_are_gone();

}  // namespace gyre
