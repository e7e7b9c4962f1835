#include "lib/trust/derive.h"

#include "lib/base/owned.h"
#include "lib/trust/openssl.h"

#include <fmt/core.h>
#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

namespace gyre::trust {
namespace {

struct KdfTraits {
  using Handle = EVP_KDF*;
  static Handle none() { return nullptr; }
  static void close(Handle kdf) { EVP_KDF_free(kdf); }
};
struct KdfRunTraits {
  using Handle = EVP_KDF_CTX*;
  static Handle none() { return nullptr; }
  static void close(Handle run) { EVP_KDF_CTX_free(run); }
};

}  // namespace

std::string hexadecimal(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

Status derive(std::span<const std::uint8_t> secret, std::string_view label,
              std::span<std::uint8_t> output) {
  begin_openssl();
  const Owned<KdfTraits> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  const Owned<KdfRunTraits> run(kdf.has_value() ? EVP_KDF_CTX_new(kdf.get()) : nullptr);
  if (!run.has_value()) return internal_error("OpenSSL offers no HKDF");
  char digest[] = "SHA256";
  char salt[] = "gyre 1";
  // The parameters take pointers to non-const and only read.
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt, sizeof salt - 1),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY,
                                        const_cast<std::uint8_t*>(secret.data()), secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, const_cast<char*>(label.data()),
                                        label.size()),
      OSSL_PARAM_construct_end()};
  if (EVP_KDF_derive(run.get(), output.data(), output.size(), parameters) != 1)
    return internal_error("OpenSSL's HKDF failed");
  return {};
}

}  // namespace gyre::trust
