// Whether a fork of this process leaves it the pages that devices have pinned. Before, a fork
// shared private pages with the child, pinned or not, and whoever stored there first got another
// page: this process, while the device kept the one that it knew.
#pragma once

#include <string_view>

namespace gyre::transport {

// By the kernel's release: "5.15.0-91-generic". Linux does since 5.10, with huge pages of hugetlbfs
// since 5.12. An older one with that change in it is not known.
bool forks_copy_pinned_pages(std::string_view release);
// This machine's.
bool forks_copy_pinned_pages();

}  // namespace gyre::transport
