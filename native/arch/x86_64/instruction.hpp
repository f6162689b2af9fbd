// Decodes just enough of the instruction set to relocate instructions: how long each one is, and
// which part of it depends on its address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace reachscan::arch {

enum class Flow {
  kOn,           // to the next instruction
  kCall,         // a call whose target is a distance
  kJump,         // unconditional, with a target that is a distance of four bytes or one
  kBranch,       // conditional
  kShortBranch,  // conditional, with no form that reaches further than one byte
  kAway,         // leaves, but not by a distance: a return, a jump through a table
};

struct Instruction {
  std::size_t length = 0;  // 0: unknown instruction
  Flow flow = Flow::kOn;
  std::uint8_t condition = 0;   // of a branch
  std::size_t distance_at = 0;  // offset of a distance, from the instruction's end, to data
  std::int64_t distance = 0;    // the value of that, or the distance of the target
};

class InstructionReader {
 public:
  // Decodes the instruction at `code`, where `bytes` bytes are readable.
  InstructionReader(const unsigned char* code, std::size_t bytes) : code_(code), bytes_(bytes) {}

  Instruction read() {
    if (!read_opcode() || at_ > bytes_ || at_ > kMaxLength) return {};
    instruction_.length = at_;
    return instruction_;
  }

 private:
  static constexpr std::size_t kMaxLength = 15;

  unsigned char next() { return at_ < bytes_ ? code_[at_++] : (at_ = bytes_ + 1, 0); }

  bool skip(std::size_t bytes) {
    at_ += bytes;
    return true;
  }

  template <typename Number>
  bool read_distance(Flow flow, std::uint8_t condition = 0) {
    if (at_ + sizeof(Number) > bytes_) return false;
    Number value;
    std::memcpy(&value, code_ + at_, sizeof value);
    at_ += sizeof value;
    instruction_.flow = flow;
    instruction_.condition = condition;
    instruction_.distance = value;
    return !is_short_;  // a prefix would truncate it
  }

  bool end_flow(std::size_t immediate) {
    instruction_.flow = Flow::kAway;
    return skip(immediate);
  }

  // Reads the ModRM operands and skips what follows.
  bool read_operands(std::size_t immediate) {
    unsigned char modrm = next();
    unsigned mod = modrm >> 6, rm = modrm & 7;
    register_ = modrm >> 3 & 7;
    if (mod == 3) return skip(immediate);
    unsigned base = rm == 4 ? next() & 7 : rm;
    if (mod == 0 && base == 5) {
      if (at_ + sizeof(std::int32_t) > bytes_) return false;
      std::int32_t distance;
      std::memcpy(&distance, code_ + at_, sizeof distance);
      if (rm == 5) {
        instruction_.distance_at = at_;
        instruction_.distance = distance;
      }
      at_ += sizeof distance;
    } else {
      at_ += mod == 1 ? 1 : mod == 2 ? 4 : 0;
    }
    return skip(immediate);
  }

  std::size_t full_immediate() const { return is_short_ ? 2 : 4; }

  bool read_opcode() {
    unsigned char byte = next();
    for (;; byte = next()) {
      bool is_prefix = byte == 0x66 || byte == 0xf2 || byte == 0xf3 || byte == 0x2e ||
                       byte == 0x3e || byte == 0x64 || byte == 0x65 || byte == 0xf0;
      if (!is_prefix) break;
      if (byte == 0x66) is_short_ = true;
      if (at_ > kMaxLength) return false;
    }
    if ((byte & 0xf0) == 0x40) {
      is_wide_ = (byte & 8) != 0;
      byte = next();
    }
    switch (byte) {
      case 0x0f:
        return read_second(next());
      case 0xc5:
        next();
        return read_vector(1);
      case 0xc4: {
        unsigned map = next() & 0x1f;
        next();
        return read_vector(map);
      }
      case 0x62: {
        unsigned map = next() & 7;
        next();
        next();
        return read_vector(map);
      }
      default:
        return byte < 0x40   ? read_arithmetic(byte)
               : byte < 0xc0 ? read_middle(byte)
                             : read_upper(byte);
    }
  }

  bool read_arithmetic(unsigned char byte) {
    switch (byte & 7) {
      case 0 ... 3:
        return read_operands(0);
      case 4:
        return skip(1);
      case 5:
        return skip(full_immediate());
      default:
        return false;
    }
  }

  bool read_middle(unsigned char byte) {
    switch (byte) {
      case 0x50 ... 0x5f:  // push, pop
      case 0x90 ... 0x99:  // xchg, nop, cwd
      case 0x9c ... 0x9f:
      case 0xa4 ... 0xa7:  // movs, cmps
      case 0xaa ... 0xaf:  // stos, lods, scas
        return true;
      case 0x63:
      case 0x84 ... 0x8b:  // test, xchg, mov
      case 0x8d:           // lea
      case 0x8f:
        return read_operands(0);
      case 0x68:
      case 0xa9:
        return skip(full_immediate());
      case 0x69:
      case 0x81:
        return read_operands(full_immediate());
      case 0x6a:
      case 0xa8:
      case 0xb0 ... 0xb7:
        return skip(1);
      case 0x6b:
      case 0x80:
      case 0x83:
        return read_operands(1);
      case 0x70 ... 0x7f:
        return read_distance<std::int8_t>(Flow::kBranch, byte & 0x0f);
      case 0xb8 ... 0xbf:
        return skip(is_wide_ ? 8 : full_immediate());
      default:
        return false;
    }
  }

  bool read_upper(unsigned char byte) {
    switch (byte) {
      case 0xc0:
      case 0xc1:
      case 0xc6:
        return read_operands(1);
      case 0xc7:
        return read_operands(full_immediate());
      case 0xc2:
        return end_flow(2);
      case 0xc3:
      case 0xf4:
        return end_flow(0);
      case 0xc9:
      case 0xcc:
      case 0xf5:
      case 0xf8 ... 0xfd:
        return true;
      case 0xd0 ... 0xd3:
      case 0xd8 ... 0xdf:
      case 0xfe:
        return read_operands(0);
      case 0xe0 ... 0xe3:
        return read_distance<std::int8_t>(Flow::kShortBranch);
      case 0xe8:
        return read_distance<std::int32_t>(Flow::kCall);
      case 0xe9:
        return read_distance<std::int32_t>(Flow::kJump);
      case 0xeb:
        return read_distance<std::int8_t>(Flow::kJump);
      case 0xf6:
        return read_operands(0) && (register_ > 1 || skip(1));
      case 0xf7:
        return read_operands(0) && (register_ > 1 || skip(full_immediate()));
      case 0xff:
        if (!read_operands(0)) return false;
        if (register_ == 4 || register_ == 5) instruction_.flow = Flow::kAway;
        return true;
      default:
        return false;
    }
  }

  bool read_second(unsigned char byte) {
    switch (byte) {
      case 0x05:           // syscall
      case 0x31:           // rdtsc
      case 0x77:           // emms
      case 0xa2:           // cpuid
      case 0xc8 ... 0xcf:  // bswap
        return true;
      case 0x0b:  // ud2
        return end_flow(0);
      case 0x38:
        next();
        return read_operands(0);
      case 0x3a:
        next();
        return read_operands(1);
      case 0x80 ... 0x8f:
        return read_distance<std::int32_t>(Flow::kBranch, byte & 0x0f);
      case 0x70 ... 0x73:
      case 0xa4:
      case 0xac:
      case 0xba:
      case 0xc2:
      case 0xc4 ... 0xc6:
        return read_operands(1);
      case 0x00 ... 0x04:
      case 0x06 ... 0x0a:
      case 0x0c:
      case 0x30:
      case 0x32 ... 0x37:
      case 0xa0:
      case 0xa1:
      case 0xa8 ... 0xaa:
        return false;
      default:
        return read_operands(0);
    }
  }

  bool read_vector(unsigned map) {
    unsigned char byte = next();
    bool has_constant = map == 3 || (map == 1 && ((byte >= 0x70 && byte <= 0x73) || byte == 0xc2 ||
                                                  (byte >= 0xc4 && byte <= 0xc6)));
    if (map == 0 || map > 3) return false;
    return (map == 1 && byte == 0x77) || read_operands(has_constant ? 1 : 0);
  }

  const unsigned char* code_;
  std::size_t bytes_;
  std::size_t at_ = 0;
  bool is_short_ = false;
  bool is_wide_ = false;
  unsigned register_ = 0;
  Instruction instruction_;
};

}  // namespace reachscan::arch
