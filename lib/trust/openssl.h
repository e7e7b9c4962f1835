// Initialises OpenSSL for this library.
#pragma once

#include <openssl/crypto.h>

namespace gyre::trust {

// Before the first digest, key or session. At exit() other threads may still be inside: OpenSSL is
// not to take itself down then. Where the program has used it first, it does so after our own
// farewell.
inline void begin_openssl() {
  static const int begun = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  (void)begun;
}

}  // namespace gyre::trust
