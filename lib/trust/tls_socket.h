// SocketBio and SocketPsk: the two places where OpenSSL calls back into a SecureSocket, for bytes
// of the socket and for the key. Private to secure_socket.
#pragma once

#include "lib/trust/secure_socket.h"

namespace gyre::trust {

struct SocketBio {
  static int write(BIO* bio, const char* data, int length);
  static int read(BIO* bio, char* data, int length);
  static long control(BIO* bio, int command, long number, void* pointer);
};

struct SocketPsk {
  static int use(SSL* ssl, const EVP_MD* digest, const unsigned char** identity,
                 std::size_t* identity_bytes, SSL_SESSION** session);
  static int find(SSL* ssl, const unsigned char* identity, std::size_t identity_bytes,
                  SSL_SESSION** session);
};

}  // namespace gyre::trust
