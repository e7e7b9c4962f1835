// A mark among the process's descriptors: as long as it stands, their numbers are what they were. A
// program that closes all descriptors which it does not know (closefrom) takes it down as well.
// From then on what the library has are numbers that may be somebody else's files: nothing is
// closed or written by them. Process-wide, as descriptors are.
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
