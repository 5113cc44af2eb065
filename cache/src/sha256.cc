#include "sha256.h"

// The three functions of libcrypto that need nothing else of it: linked from its archive they are 30 KB
// with the CPU's SHA instructions, where the EVP interface brings all of OpenSSL and its configuration files.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

namespace clikart::cache {

static_assert(SHA256_DIGEST_LENGTH == std::tuple_size_v<Digest>);

Digest Sha256(std::span<const uint8_t> bytes) {
  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Update(&context, bytes.data(), bytes.size());
  Digest digest;
  SHA256_Final(digest.data(), &context);
  return digest;
}

std::string Hex(const Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * digest.size());
  for (const uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace clikart::cache
