// Searches the index of .eh_frame and runs the instructions of one entry.
#include "recorder/unwind/eh_frame.hpp"

#include "recorder/unwind/table_reader.hpp"

namespace reachscan::recorder {

namespace {

constexpr std::uint64_t kNoRegister = ~std::uint64_t{0};

// Where one register of the caller is.
struct Saved {
  enum Where { kSame, kAtOffset, kUndefined, kElsewhere } where = kSame;
  std::int64_t offset = 0;  // from the canonical frame address
};

// One row of the table described by call frame instructions, as far as it is needed here.
struct Row {
  std::uint64_t base = kNoRegister;  // the canonical frame address is this register + offset,
  std::int64_t offset = 0;
  bool saved_at_base = false;  // or, by an expression, the word there
  Saved fp;
  Saved return_address;

  Saved* saved(std::uint64_t number) {
    if (number == arch::kDwarfFramePointer) return &fp;
    return number == arch::kDwarfReturnAddress ? &return_address : nullptr;
  }
};

// The common information entry (CIE) of the functions of a compilation unit.
struct CommonInformation {
  std::uint64_t code_unit = 1;
  std::int64_t data_unit = 1;
  std::uint8_t pointer_encoding = 0;
  bool has_augmentation_data = false;
  bool is_of_signal = false;
  TableReader program{0, 0};
};

// Reads the length of an entry and returns its end, or 0 after the last entry.
std::uint64_t entry_end(TableReader& reader) {
  constexpr std::uint32_t kLong = 0xffffffff;
  std::uint64_t length = reader.number<std::uint32_t>();
  if (length == kLong) length = reader.number<std::uint64_t>();
  return length == 0 ? 0 : reader.at() + length;
}

bool read_common(std::uint64_t at, std::uint64_t limit, CommonInformation& common) {
  TableReader reader(at, limit);
  std::uint64_t end = entry_end(reader);
  if (end < at || end > limit || reader.number<std::uint32_t>() != 0) return false;
  auto version = reader.number<std::uint8_t>();
  std::uint64_t augmentation = reader.at();
  while (reader.number<std::uint8_t>() != 0) {
  }
  if (reader.overran()) return false;
  common.code_unit = reader.unsigned_leb();
  common.data_unit = reader.signed_leb();
  if (version == 1) {
    reader.number<std::uint8_t>();
  } else {
    reader.unsigned_leb();
  }
  const char* letter = reinterpret_cast<const char*>(augmentation);
  if (*letter == 'z') {
    common.has_augmentation_data = true;
    std::uint64_t bytes = reader.unsigned_leb();
    std::uint64_t program = reader.at() + bytes;
    while (*++letter != 0) {
      if (*letter == 'R') common.pointer_encoding = reader.number<std::uint8_t>();
      if (*letter == 'S') common.is_of_signal = true;
      if (*letter == 'L') reader.number<std::uint8_t>();
      if (*letter == 'P') reader.pointer(reader.number<std::uint8_t>());
    }
    common.program = TableReader(program, end);
  } else if (*letter == 0) {
    common.program = TableReader(reader.at(), end);
  } else {
    return false;
  }
  return !reader.overran() && common.program.at() <= end;
}

// Executes call frame instructions up to the row of one address.
class RowProgram {
 public:
  RowProgram(const CommonInformation& common, std::uint64_t function, std::uint64_t address)
      : common_(common), location_(function), address_(address) {}

  Row row;

  // Returns false after an unknown instruction: then no row is known.
  bool run(TableReader reader) {
    while (!reader.is_at_end()) {
      if (!step(reader) || reader.overran()) return false;
      if (location_ > address_) break;
      settled_ = row;
    }
    row = settled_;
    return true;
  }

  // The rows of functions start with the state after the common instructions.
  void keep_initial() { initial_ = row; }

 private:
  static constexpr std::size_t kMaxRemembered = 8;

  bool step(TableReader& reader) {
    auto code = reader.number<std::uint8_t>();
    std::uint64_t low = code & 0x3f;
    switch (code & 0xc0) {
      case 0x40:
        return advance(low);
      case 0x80:
        return save(low, unit(reader.unsigned_leb()));
      case 0xc0:
        return restore(low);
      default:
        return code < 0x0d ? step_location_or_register(code, reader) : step_frame(code, reader);
    }
  }

  bool step_location_or_register(std::uint8_t code, TableReader& reader) {
    switch (code) {
      case 0x00:  // nop
        return true;
      case 0x01:  // set_loc
        location_ = reader.pointer(common_.pointer_encoding);
        return true;
      case 0x02:
        return advance(reader.number<std::uint8_t>());
      case 0x03:
        return advance(reader.number<std::uint16_t>());
      case 0x04:
        return advance(reader.number<std::uint32_t>());
      case 0x05: {  // offset_extended
        std::uint64_t number = reader.unsigned_leb();
        return save(number, unit(reader.unsigned_leb()));
      }
      case 0x06:  // restore_extended
        return restore(reader.unsigned_leb());
      case 0x07:  // undefined
        return mark(reader.unsigned_leb(), Saved::kUndefined);
      case 0x08:  // same_value
        return mark(reader.unsigned_leb(), Saved::kSame);
      case 0x09: {  // register
        std::uint64_t number = reader.unsigned_leb();
        reader.unsigned_leb();
        return mark(number, Saved::kElsewhere);
      }
      case 0x0a:
        return remember();
      case 0x0b:
        return recall();
      default: {  // 0x0c, def_cfa
        std::uint64_t base = reader.unsigned_leb();
        return define(base, static_cast<std::int64_t>(reader.unsigned_leb()));
      }
    }
  }

  bool step_frame(std::uint8_t code, TableReader& reader) {
    switch (code) {
      case 0x0d:  // def_cfa_register
        return define(reader.unsigned_leb(), row.offset);
      case 0x0e:  // def_cfa_offset
        return define(row.base, static_cast<std::int64_t>(reader.unsigned_leb()));
      case 0x0f:
        return define_by_expression(reader);
      case 0x10:    // expression
      case 0x16: {  // val_expression
        std::uint64_t number = reader.unsigned_leb();
        reader.skip(reader.unsigned_leb());
        return mark(number, Saved::kElsewhere);
      }
      case 0x11: {  // offset_extended_sf
        std::uint64_t number = reader.unsigned_leb();
        return save(number, reader.signed_leb() * common_.data_unit);
      }
      case 0x12: {  // def_cfa_sf
        std::uint64_t base = reader.unsigned_leb();
        return define(base, reader.signed_leb() * common_.data_unit);
      }
      case 0x13:  // def_cfa_offset_sf
        return define(row.base, reader.signed_leb() * common_.data_unit);
      case 0x14:    // val_offset
      case 0x15: {  // val_offset_sf
        std::uint64_t number = reader.unsigned_leb();
        reader.unsigned_leb();
        return mark(number, Saved::kElsewhere);
      }
      case 0x2e:  // GNU_args_size
        reader.unsigned_leb();
        return true;
      default:
        return arch::only_signs(code);
    }
  }

  std::int64_t unit(std::uint64_t factored) const {
    return static_cast<std::int64_t>(factored) * common_.data_unit;
  }

  bool advance(std::uint64_t factored) {
    location_ += factored * common_.code_unit;
    return true;
  }

  bool mark(std::uint64_t number, Saved::Where where) {
    if (Saved* saved = row.saved(number)) *saved = {where, 0};
    return true;
  }

  bool save(std::uint64_t number, std::int64_t offset) {
    if (Saved* saved = row.saved(number)) *saved = {Saved::kAtOffset, offset};
    return true;
  }

  bool restore(std::uint64_t number) {
    if (Saved* saved = row.saved(number)) *saved = *initial_.saved(number);
    return true;
  }

  bool define(std::uint64_t base, std::int64_t offset) {
    row.base = base;
    row.offset = offset;
    row.saved_at_base = false;
    return true;
  }

  // Functions that realign their stack keep the address in a word below the frame pointer: breg,
  // deref. Other expressions are not supported.
  bool define_by_expression(TableReader& reader) {
    constexpr std::uint8_t kBaseRegister = 0x70, kDereference = 0x06;
    std::uint64_t bytes = reader.unsigned_leb();
    TableReader expression(reader.at(), reader.at() + bytes);
    reader.skip(bytes);
    define(kNoRegister, 0);
    if (reader.overran() ||
        expression.number<std::uint8_t>() != kBaseRegister + arch::kDwarfFramePointer)
      return true;
    std::int64_t offset = expression.signed_leb();
    if (expression.number<std::uint8_t>() != kDereference || !expression.is_at_end()) return true;
    define(arch::kDwarfFramePointer, offset);
    row.saved_at_base = true;
    return true;
  }

  bool remember() {
    if (remembered_count_ == kMaxRemembered) return false;
    remembered_[remembered_count_++] = row;
    return true;
  }

  bool recall() {
    if (remembered_count_ == 0) return false;
    row = remembered_[--remembered_count_];
    return true;
  }

  const CommonInformation& common_;
  std::uint64_t location_;
  std::uint64_t address_;
  Row initial_;
  Row settled_;
  Row remembered_[kMaxRemembered];
  std::size_t remembered_count_ = 0;
};

// Returns how far below the canonical frame address a register was saved; 0 if it was not, negative
// if that is not known.
std::int64_t distance_of(const Saved& saved) {
  if (saved.where == Saved::kSame) return 0;
  return saved.where == Saved::kAtOffset && saved.offset < 0 ? -saved.offset : -1;
}

Rule rule_of(const Row& row) {
  if (row.return_address.where == Saved::kUndefined) return Rule(RuleKind::kEnd);
  std::int64_t return_address = distance_of(row.return_address);
  std::int64_t saved_fp = row.fp.where == Saved::kUndefined ? 0 : distance_of(row.fp);
  if (return_address < 0 || saved_fp < 0) return {};
  // Where the frame pointer does not lead to the end, stacks are realigned in another way.
  if (row.saved_at_base)
    return arch::kRecordEndsFrame
               ? Rule::make(RuleKind::kSavedAtFp, -row.offset, saved_fp, return_address)
               : Rule();
  if (row.base == arch::kDwarfStackPointer)
    return Rule::make(RuleKind::kFromSp, row.offset, saved_fp, return_address);
  if (row.base == arch::kDwarfFramePointer)
    return Rule::make(RuleKind::kFromFp, row.offset, saved_fp, return_address);
  return {};
}

Rule rule_of_function(const UnwindTables& tables, std::uint64_t at, std::uint64_t address) {
  TableReader reader(at, tables.end);
  std::uint64_t end = entry_end(reader);
  if (end < at || end > tables.end) return {};
  std::uint64_t common_at = reader.at();
  common_at -= reader.number<std::uint32_t>();
  CommonInformation common;
  if (common_at < tables.start || common_at >= at || !read_common(common_at, tables.end, common) ||
      common.is_of_signal)
    return {};
  std::uint64_t function = reader.pointer(common.pointer_encoding);
  std::uint64_t size = reader.pointer(common.pointer_encoding & 0x0f);
  if (reader.overran() || address - function >= size) return {};
  if (common.has_augmentation_data) reader.skip(reader.unsigned_leb());
  RowProgram program(common, function, address);
  if (!program.run(common.program)) return {};
  program.keep_initial();
  if (!program.run(TableReader(reader.at(), end))) return {};
  return rule_of(program.row);
}

// Returns the entry of the function that covers `address`, using the index; 0 if there is none. The
// index is sorted and consists of pairs of signed 32-bit distances from itself: first address,
// entry.
std::uint64_t find_function(const UnwindTables& tables, std::uint64_t address) {
  constexpr std::uint8_t kDataRelative32 = 0x3b;
  TableReader reader(tables.index, tables.end);
  auto version = reader.number<std::uint8_t>();
  auto frames_encoding = reader.number<std::uint8_t>();
  auto count_encoding = reader.number<std::uint8_t>();
  auto table_encoding = reader.number<std::uint8_t>();
  reader.pointer(frames_encoding, tables.index);
  std::uint64_t count = reader.pointer(count_encoding, tables.index);
  if (version != 1 || table_encoding != kDataRelative32 || reader.overran() ||
      count > (tables.end - reader.at()) / 8)
    return 0;
  auto entry = [&](std::uint64_t i, std::uint64_t half) {
    std::int32_t distance;
    __builtin_memcpy(&distance, reinterpret_cast<const void*>(reader.at() + i * 8 + half * 4), 4);
    return tables.index + static_cast<std::uint64_t>(std::int64_t{distance});
  };
  std::uint64_t low = 0, high = count;  // entries before `low` start at or below `address`
  while (low < high) {
    std::uint64_t middle = (low + high) / 2;
    if (entry(middle, 0) <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low == 0 ? 0 : entry(low - 1, 1);
}

// Searches all entries in sequence: results are cached by return address.
Rule find_rule_without_index(const UnwindTables& tables, std::uint64_t address) {
  Rule rule;
  for (TableReader reader(tables.start, tables.end); !reader.is_at_end();) {
    std::uint64_t at = reader.at(), end = entry_end(reader);
    if (end <= at || end > tables.end) break;
    bool is_common = reader.number<std::uint32_t>() == 0;
    if (!is_common) rule = rule_of_function(tables, at, address);
    if (rule.kind() != RuleKind::kUnknown) break;
    reader = TableReader(end, tables.end);
  }
  return rule;
}

}  // namespace

Rule find_rule(const UnwindTables& tables, std::uint64_t return_address) {
  if (!tables.exist()) return {};
  std::uint64_t address = return_address - 1;
  if (tables.index == 0) return find_rule_without_index(tables, address);
  std::uint64_t function = find_function(tables, address);
  if (function < tables.start || function >= tables.end) return {};
  return rule_of_function(tables, function, address);
}

}  // namespace reachscan::recorder
