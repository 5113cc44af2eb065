#include "tar.h"

#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace clikart::cli {
namespace {

constexpr size_t kBlock = 512;

// Numbers are octal digits and a NUL.
struct Header {
  char name[100], mode[8], user[8], group[8], size[12], time[12], checksum[8], type, link[100], magic[6], version[2],
      user_name[32], group_name[32], major[8], minor[8], prefix[155], padding[12];
};
static_assert(sizeof(Header) == kBlock);

size_t RoundUp(size_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock; }

// The sum of the bytes, with those of the sum itself taken as blanks.
unsigned Checksum(Header header) {
  std::memset(header.checksum, ' ', sizeof(header.checksum));
  unsigned sum = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&header);
  for (size_t i = 0; i < sizeof(header); ++i) sum += bytes[i];
  return sum;
}

template <size_t N>
void PutOctal(char (&field)[N], uint64_t value) {
  for (size_t i = N - 1; i-- > 0; value >>= 3) field[i] = static_cast<char>('0' + (value & 7));
  field[N - 1] = '\0';
}

template <size_t N>
bool GetOctal(const char (&field)[N], uint64_t& value) {
  size_t i = 0;
  while (i < N && field[i] == ' ') ++i;
  const size_t first = i;
  value = 0;
  for (; i < N && field[i] >= '0' && field[i] <= '7'; ++i) value = value << 3 | static_cast<uint64_t>(field[i] - '0');
  return i > first && (i == N || field[i] == '\0' || field[i] == ' ');
}

}  // namespace

std::vector<uint8_t> TarMemberBytes(std::string_view name, std::span<const uint8_t> content) {
  Header header = {};
  std::memcpy(header.name, name.data(), std::min(name.size(), sizeof(header.name)));
  PutOctal(header.mode, 0644);
  PutOctal(header.user, 0);
  PutOctal(header.group, 0);
  PutOctal(header.size, content.size());
  PutOctal(header.time, 0);
  header.type = '0';
  std::memcpy(header.magic, "ustar", sizeof(header.magic));
  std::memcpy(header.version, "00", sizeof(header.version));
  std::snprintf(header.checksum, sizeof(header.checksum), "%06o", Checksum(header));
  header.checksum[7] = ' ';
  std::vector<uint8_t> bytes(sizeof(header) + RoundUp(content.size()));
  std::memcpy(bytes.data(), &header, sizeof(header));
  if (!content.empty()) std::memcpy(bytes.data() + sizeof(header), content.data(), content.size());
  return bytes;
}

std::vector<uint8_t> TarEnd() { return std::vector<uint8_t>(2 * kBlock); }

absl::StatusOr<std::vector<TarMember>> ReadTar(std::span<const uint8_t> archive) {
  std::vector<TarMember> members;
  while (archive.size() >= kBlock) {
    Header header;
    std::memcpy(&header, archive.data(), sizeof(header));
    if (header.name[0] == '\0') return members;  // the end
    uint64_t size = 0, checksum = 0;
    if (std::memcmp(header.magic, "ustar", 5) != 0 || !GetOctal(header.checksum, checksum) ||
        checksum != Checksum(header) || !GetOctal(header.size, size)) {
      return absl::DataLossError("this is no tar archive, or a damaged one");
    }
    if (size > archive.size() || RoundUp(size) + kBlock > archive.size()) {
      return absl::DataLossError("the archive is cut off");
    }
    if (header.type == '0' || header.type == '\0') {
      members.push_back(
          {std::string(header.name, strnlen(header.name, sizeof(header.name))), archive.subspan(kBlock, size)});
    }
    archive = archive.subspan(kBlock + RoundUp(size));
  }
  return absl::DataLossError("the archive has no end");
}

}  // namespace clikart::cli
