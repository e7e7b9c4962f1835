// System calls that this process is denied, as some profiles of containers deny them.
#pragma once

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

namespace gyre::tests {

// From here on it fails with EPERM, in this process and its children. False: a sandbox without
// seccomp, in which it is not denied.
inline bool deny_call(unsigned number) {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(rules), rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Whether the kernel copies from this process's memory, even for itself.
inline bool may_copy_memory() {
  char from = 1, to = 0;
  const iovec target{&to, 1}, source{&from, 1};
  return process_vm_readv(getpid(), &target, 1, &source, 1, 0) == 1;
}

}  // namespace gyre::tests
