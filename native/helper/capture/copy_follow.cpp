// Updates a copy of a running process: mappings and pages are created and removed meanwhile.
#include <algorithm>

#include "helper/capture/copy.hpp"
#include "helper/target/memory_kinds.hpp"

namespace reachscan::helper {

void MemoryCopy::follow() {
  open_page_map();
  mappings_ = files_.mappings_of(pid_);
  ResidentPages now;
  std::vector<AddressRange> ranges, pages, known;
  for (const MapEntry& entry : mappings_) {
    std::vector<AddressRange> written = now.add(*page_map_, *page_map_, entry);
    if (entry.backing == Backing::kSecret || !is_readable(entry) || !changes(entry)) continue;
    ranges.push_back({entry.start, entry.end});
    pages.insert(pages.end(), written.begin(), written.end());
  }
  resident_pages_ = std::move(now);
  for (const Part& part : written_) append(known, part.address, part.address + part.length);
  for (const Part& part : split(subtract(known, pages))) clear(part);
  make_room_for(ranges);
  written_ = split(pages);
}

// Mappings that have grown continue in another part.
void MemoryCopy::make_room_for(const std::vector<AddressRange>& ranges) {
  std::vector<AddressRange> covered;
  for (const Part& part : parts_) covered.push_back({part.address, part.address + part.length});
  for (const AddressRange& stretch : subtract(ranges, covered)) {
    reserve(stretch);
  }
  std::sort(parts_.begin(), parts_.end(),
            [](const Part& a, const Part& b) { return a.address < b.address; });
  captured_ = parts_.size();
}

// Returns where pages are in the copy.
std::vector<MemoryCopy::Part> MemoryCopy::split(const std::vector<AddressRange>& pages) const {
  std::vector<Part> places;
  for (AddressRange rest : pages) {
    while (rest.start < rest.end) {
      const Part& part = part_before(parts_, rest.start);
      AddressRange piece{rest.start, std::min(rest.end, part.address + part.length)};
      places.push_back(part.within(piece));
      rest.start = piece.end;
    }
  }
  return places;
}

}  // namespace reachscan::helper
