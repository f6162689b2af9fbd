// Conservative marking: every aligned word of a root, and then of each block reached, that points
// anywhere into a live block marks it. docs/how-it-works.md has an example.
//
//   roots, ranges        scan_slice
//   others gave away ──────────────▶ found_: words that may point into the heap ◀──────────┐
//                                      │                                                   │
//                        few           │           many (worklist_.many())                 │
//               ┌──────────────────────┴──────────────────────┐                            │
//               ▼                                             ▼                            │
//        fetch_candidates ◀── its turn, few values ─── sort_found: a box for each bucket   │
//          prefetch bitmap and block                          │ box full, or its turn      │
//               ▼                                             ▼                            │
//        claim_candidates                              mark, note as grey                  │
//          mark, prefetch block                               │ the bucket's turn          │
//               │                                             ▼                            │
//               │                                      claim_grey                          │
//               │                                        no longer grey, prefetch block    │
//               └────────────────────┬────────────────────────┘                            │
//                                    ▼                                                     │
//                      claimed_: blocks to scan ── scan_claimed ───────────────────────────┘
//
// On the left, blocks are processed one by one, in batches. The stages give memory time to arrive
// between prefetch and use (as a queue does in "prefetch on grey": Cher, Hosking, Vitek, 2004). On
// the right, all blocks in a bucket share one wait for its bitmaps and pages. Several markers may
// work on one graph (shared_worklist.hpp).
#pragma once

#include "sweeper/mark/dense_maps.hpp"
#include "sweeper/mark/ignored_words.hpp"
#include "sweeper/mark/mailbox.hpp"
#include "sweeper/mark/pointer_filter.hpp"
#include "sweeper/mark/words.hpp"

namespace reachscan::sweeper {

class Marker {
 public:
  Marker(const heaps::Space& space, BlockMap& blocks, SharedWorklist& worklist)
      : space_(space),
        blocks_(blocks),
        worklist_(worklist),
        near_(blocks),
        access_(worklist.locks()),
        mark_buckets_(blocks, worklist, access_),
        mailbox_(worklist, mark_buckets_),
        found_(blocks.hull(), 2 * worklist.many()) {}

  // Must be called first on every marker except the first one.
  void join() { mailbox_.join(); }

  // Scans [start, end), word-aligned, as a root.
  void mark_range(uint64_t start, uint64_t end) {
    range_ = {start, end};
    drain();
  }

  void mark_value(uint64_t value) {
    found_.add(value | heaps::kElsewhere);
    drain();
  }

  // Works with the other markers until everything given to any of them is marked. Calls `nap` now
  // and then while idle.
  template <typename Nap>
  void finish(Nap nap) {
    do {
      drain();
    } while (worklist_.wait(nap));
  }

  // Puts these words aside instead of following them.
  void ignore(const IgnoredWords& words) { ignored_ = &words; }

  // What is to be scanned. Every block counts as much as the average one.
  struct Amount {
    uint64_t bytes;  // 0: not to be reported
    uint64_t bytes_of_block;
  };

  // Sets what all members will scan together; this marker then reports progress.
  void expect(const Amount& amount) { expected_ = amount; }

 private:
  static constexpr uint64_t kSlice = PointerFilter::kMaxScanBytes;
  static constexpr uint64_t kLargeBlock = 1 << 20;  // several markers may scan parts of it
  static constexpr uint64_t kReport = 64 << 20;     // bytes between two progress reports
  static constexpr unsigned kBatch = 48;
  // Many, so that the wait for the first of them weighs little.
  static constexpr unsigned kMaxClaimed = 256;
  static constexpr unsigned kMaxBlocksAtOnce =
      heaps::kSpansAtOnce * heaps::kSpan / heaps::kMinBlock;
  static_assert(kMaxClaimed + kMaxBlocksAtOnce <= PointerFilter::kMaxBlocks);

  struct Candidate {
    uint64_t value;
    const heaps::Cluster* cluster;
  };

  struct Granules {
    static constexpr unsigned kEnough = 256, kMostAtOnce = (heaps::kSpansAtOnce + 1) * 64;

    void add(heaps::Granule granule) { granules[count++] = granule; }

    unsigned count;
    heaps::Granule granules[kEnough + kMostAtOnce];
  };

  // Scanning.

  void scan_claimed() {
    make_room();
    auto scan = [this](heaps::Range block) { scan_block(block); };
    if (ignored_ == nullptr) {
      found_.scan_blocks(claimed_, claimed_count_, scan);
    } else {
      for (unsigned i = 0; i < claimed_count_; ++i) scan(claimed_[i]);
    }
    claimed_count_ = 0;
  }

  // Scans the granules that were fetched the last time, while others are on their way.
  void scan_granules() {
    make_room();
    found_.scan_granules(arrived_->granules, arrived_->count);
    arrived_->count = 0;
    Granules* scanned = arrived_;
    arrived_ = coming_;
    coming_ = scanned;
  }

  void scan_block(heaps::Range block) {
    make_room();
    heaps::Range head = heaps::head_of(block);
    if (block.end - block.start <= kSlice || space_.skip_absent(head.start) == head.start) {
      bool has_ignored = ignored_ != nullptr && ignored_->may_be_in(ignored_->rules, block.start);
      if (has_ignored || may_contain_dense_map(block)) return scan_around_stale(block, has_ignored);
      found_.scan_head(head);
    }
    block.start = head.end;
    if (!access_.alone() && block.end - block.start >= kLargeBlock && worklist_.give(block)) return;
    while (block.start != block.end) scan_slice(block);
  }

  // Scans it word by word, and puts stale words aside.
  void scan_around_stale(heaps::Range block, bool has_ignored) {
    uint64_t head_end = heaps::head_of(block).end;
    const bool has_table = !has_ignored || may_contain_dense_map(block);
    const DenseMap<FreeKeys> table(block);
    each_word(space_, block.start, block.end, [&](uint64_t at, uint64_t value) {
      make_room();
      if (!blocks_.may_point(value)) return;
      bool is_stale = has_ignored && ignored_->have(ignored_->rules, block.start, at);
      if (has_table && !is_stale)  // values of free keys
        is_stale = is_value_in_free_pair(block, at) || table.is_value_of_free_key(at);
      if (is_stale && worklist_.put_aside(value)) return;
      if (at < head_end) return found_.scan_head({at, at + heaps::kWord});
      found_.scan(at, at + heaps::kWord);
    });
  }

  // Scans the first slice of what is left, skipping pages that were never written.
  void scan_slice(heaps::Range& left) {
    uint64_t start = left.end - left.start > kSlice ? space_.skip_absent(left.start) : left.start;
    if (start > left.end) start = left.end;
    left.start = left.end - start < kSlice ? left.end : start + kSlice;
    make_room();
    found_.scan(start, left.start);
  }

  void make_room() {
    if (found_.has_room()) return;
    found_.move_up();
    if (found_.has_room()) return;
    by_address_ = true;
    sort_found(found_.size());
  }

  void count(uint64_t bytes) {
    scanned_ += bytes;
    if (scanned_ < kReport) return;
    uint64_t together = worklist_.count(scanned_);
    scanned_ = 0;
    const uint64_t all = expected_.bytes;
    if (all != 0) begin_phase(wire::kMark, together < all ? together : all, all);
  }

  // Fetches the first lines of a block, which is all of a small block of at most three lines. A
  // scan of a large block fetches the rest. A whole batch does not fit into the first-level cache.
  static void fetch_block(heaps::Range block) {
    uint64_t second = block.start + heaps::kLine, last = block.end - heaps::kWord;
    heaps::fetch_to_l2(block.start);
    heaps::fetch_to_l2(second < last ? second : last);
    heaps::fetch_to_l2(last);
    if (block.end - block.start <= PointerFilter::kMaxSmallBlock) return;
    uint64_t ahead = block.start + PointerFilter::kAhead;
    heaps::fetch_lines(second + heaps::kLine, ahead < last ? ahead : last);
  }

  // One by one. Each stage handles a batch, so that its memory accesses overlap.

  void fetch_candidates() {
    while (!found_.empty() && candidate_count_ < kBatch) {
      uint64_t value = *found_.values();
      found_.drop(1);
      if (const heaps::Cluster* cluster = near_.of(value)) add_candidate(*cluster, value);
    }
  }

  void add_candidate(const heaps::Cluster& cluster, uint64_t value) {
    access_.fetch(cluster.bucket_of(value));
    heaps::fetch(cluster.pair(value));
    heaps::fetch(value);
    candidates_[candidate_count_++] = {value, &cluster};
  }

  void claim_candidates() {
    for (unsigned i = 0; i < candidate_count_; ++i) {
      const heaps::Cluster& cluster = *candidates_[i].cluster;
      uint64_t start = worklist_.block_in(cluster, candidates_[i].value);
      if (start == 0) continue;
      const auto access = access_.to(cluster.bucket_of(start));
      heaps::Range block = blocks_.claim(cluster, start);
      if (block.start != 0) claim(block);
    }
    candidate_count_ = 0;
    count(claimed_count_ * expected_.bytes_of_block);
  }

  // By address.

  void sort_found(uint64_t count) {
    if (access_.alone()) {
      mark_buckets_.add(found_.values(), count);
    } else {
      mailbox_.add(found_.values(), count);
    }
    found_.drop(count);
  }

  // Fetches each block as soon as it is found: when a whole batch was fetched afterwards, marking
  // took a quarter longer.
  void claim_grey() {
    if (bucket_.start == bucket_.end) return;
    const auto access = access_.to(bucket_cluster_->bucket_of(bucket_.start));
    // What is ignored depends on the whole block.
    const bool whole = heaps::kWord != 8 || ignored_ != nullptr || !blocks_.has_blanks();
    whole ? claim_blocks() : claim_granules();
  }

  void claim_blocks() {
    for (; bucket_.start < bucket_.end && claimed_count_ < kMaxClaimed;
         bucket_.start += heaps::kSpan)
      blocks_.take_grey(*bucket_cluster_, bucket_.start,
                        [this](heaps::Range block) { claim(block); });
  }

  void claim_granules() {
    for (; bucket_.start < bucket_.end && claimed_count_ < kMaxClaimed &&
           coming_->count < Granules::kEnough;
         bucket_.start += heaps::kSpansAtOnce * heaps::kSpan)
      blocks_.take_granules(
          *bucket_cluster_, bucket_.start, [this](heaps::Range block) { claim(block); },
          [this](heaps::Granule granule) {
            coming_->add(granule);
            heaps::fetch_to_l2(granule);
          });
  }

  void claim(heaps::Range block) {
    claimed_[claimed_count_++] = block;
    fetch_block(block);
  }

  bool enter_bucket() {
    while (!access_.alone() && mailbox_.receive(false)) continue;
    mark_buckets_.take_few(kBatch, [this](const heaps::Cluster& cluster, uint64_t value) {
      add_candidate(cluster, value);
    });
    count(mark_buckets_.take_marked() * expected_.bytes_of_block);
    by_address_ = mark_buckets_.values() * worklist_.members() >= worklist_.many() / 2;
    if (candidate_count_ != 0) return true;
    uint64_t start = access_.alone() ? mark_buckets_.next() : next_shared_bucket();
    if (start == 0) return false;
    bucket_ = {start, start + kBucket};
    bucket_cluster_ = blocks_.cluster_of(start);
    return true;
  }

  uint64_t next_shared_bucket() {
    uint64_t start = mark_buckets_.next();
    if (start != 0) return start;
    mailbox_.flush();
    do {
      start = mark_buckets_.next();
    } while (start == 0 && mailbox_.receive(true));
    return start;
  }

  // Sharing work with other markers.

  // While more and more values are found, one marker goes on alone, breadth first. If others set
  // out early, they are ahead or behind later, and fewer blocks wait for each bucket's turn.
  void share() {
    const uint64_t before = std::exchange(size_when_hungry_, found_.size());
    if (found_.size() >= 2 * kBatch && found_.size() <= before) sort_found(found_.size() / 2);
    mailbox_.flush();
    uint64_t middle = heaps::align_up(range_.start / 2 + range_.end / 2, kSlice);
    if (range_.start < range_.end && range_.end > middle + kSlice &&
        worklist_.give(heaps::Range{middle, range_.end}))
      range_.end = middle;
  }

  // Runs until neither this marker nor the worklist has anything left.
  void drain() {
    do {
      access_.set_alone(worklist_.alone());
      if (!access_.alone() && worklist_.hungry()) share();
      advance();
    } while (claimed_count_ + arrived_->count + candidate_count_ != 0 || !found_.empty() ||
             find_work());
  }

  void advance() {
    scan_claimed();
    claim_candidates();
    if (!by_address_) {
      fetch_candidates();
    } else if (arrived_->count != 0 && bucket_.start == bucket_.end && range_.start == range_.end &&
               mark_buckets_.has_next()) {
      // Early, so that the granules of the last bucket arrive while others are looked for.
      enter_bucket();
    }
    if (by_address_ || candidate_count_ == 0) claim_grey();
    scan_granules();
    if (by_address_) sort_found(found_.size());
  }

  bool find_work() {
    if (range_.start == range_.end) range_ = worklist_.take_range();
    if (range_.start != range_.end) {
      count(kSlice);
      scan_slice(range_);
      return true;
    }
    if (bucket_.start != bucket_.end) return true;
    return enter_bucket();
  }

  const heaps::Space& space_;
  BlockMap& blocks_;
  SharedWorklist& worklist_;
  heaps::ClusterCache near_;
  // As of the last advance: another member that joins meanwhile must not get any work.
  BucketAccess access_;
  MarkBuckets mark_buckets_;
  Mailbox mailbox_;
  PointerFilter found_;
  uint64_t size_when_hungry_ = 0;  // of found_
  bool by_address_ = false;
  heaps::Range range_{0, 0};  // the rest of it
  heaps::Range bucket_{0, 0};
  const heaps::Cluster* bucket_cluster_ = nullptr;
  uint64_t scanned_ = 0;
  Amount expected_ = {};
  const IgnoredWords* ignored_ = nullptr;
  unsigned candidate_count_ = 0, claimed_count_ = 0;
  Candidate candidates_[kBatch];
  heaps::Range claimed_[kMaxClaimed + kMaxBlocksAtOnce];
  Granules granules_[2] = {};
  Granules *coming_ = &granules_[0], *arrived_ = &granules_[1];
};

}  // namespace reachscan::sweeper
