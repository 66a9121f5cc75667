// BPE-dropout: BPE with merges left out at random. The inner loop of `data/subword_dropout.py`, which has the same in Python.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "dropout.hpp"
#include "errors.hpp"
#include "structs.hpp"

namespace regard {
namespace {

enum Kind : uint8_t { kContinues, kBegins, kStandsAlone };  // a word; numbered as in Python

// Samples from the random words of a start: at how many steps from here on no merge is left out, and how many are at the next.
class Samples {
 public:
  Samples(const SubwordDropout& d, uint64_t start) : d_(d), start_(start) { kept_ = run_length(d.log_kept); }

  int64_t dropped() {
    if (kept_-- > 0) return 0;
    kept_ = run_length(d_.log_kept);
    return 1 + run_length(d_.log_dropped);
  }

 private:
  int64_t run_length(double log_probability) {
    constexpr double kAlways = 0x1p60;
    if (log_probability == 0.0) return static_cast<int64_t>(kAlways);
    const double uniform = static_cast<double>(random_word(start_, sampled_++) >> 11) * 0x1p-53;
    return static_cast<int64_t>(std::min(kAlways, std::log(1.0 - uniform) / log_probability));
  }

  const SubwordDropout& d_;
  uint64_t start_;
  int64_t sampled_ = 0, kept_;
};

// A merge of the piece at a place with the next one; none has the rank kNoMerge.
struct Merge {
  int64_t rank, merged;
};

constexpr int64_t kNoMerge = std::numeric_limits<int64_t>::max();

class Word {
 public:
  explicit Word(const SubwordDropout& d) : d_(d) {}

  void add(int64_t token) {
    pieces_.insert(pieces_.end(), d_.letters + d_.letter_starts[token], d_.letters + d_.letter_starts[token + 1]);
  }

  // Merge letters: at each step the first-learned pair among those that are not dropped, until none is left.
  int64_t* segment(Samples& samples, int64_t* out) {
    merges_.resize(pieces_.size());
    for (size_t at = 0; at < pieces_.size(); ++at) merges_[at] = merge_at(at);
    for (;;) {
      ranks_.clear();
      for (const Merge& merge : merges_)
        if (merge.rank != kNoMerge) ranks_.push_back(merge.rank);
      if (ranks_.empty()) break;
      const int64_t dropped = samples.dropped();
      if (dropped >= static_cast<int64_t>(ranks_.size())) break;
      std::nth_element(ranks_.begin(), ranks_.begin() + dropped, ranks_.end());
      // The same pair at two places has one rank: from the left.
      const int64_t rank = ranks_[dropped];
      int64_t before = dropped - std::count_if(ranks_.begin(), ranks_.end(), [&](int64_t r) { return r < rank; });
      size_t at = 0;
      while (merges_[at].rank != rank || before-- > 0) ++at;
      pieces_[at] = merges_[at].merged;
      pieces_.erase(pieces_.begin() + at + 1);
      merges_.erase(merges_.begin() + at + 1);
      merges_[at] = merge_at(at);
      if (at > 0) merges_[at - 1] = merge_at(at - 1);
    }
    out = std::copy(pieces_.begin(), pieces_.end(), out);
    pieces_.clear();
    return out;
  }

 private:
  Merge merge_at(size_t at) const {
    if (at + 1 >= pieces_.size()) return {kNoMerge, 0};
    const int64_t pair = pieces_[at] << 32 | pieces_[at + 1];
    const int64_t* found = std::lower_bound(d_.pairs, d_.pairs + d_.M, pair);
    if (found == d_.pairs + d_.M || *found != pair) return {kNoMerge, 0};
    return {d_.ranks[found - d_.pairs], d_.merged[found - d_.pairs]};
  }

  const SubwordDropout& d_;
  std::vector<int64_t> pieces_, ranks_;
  std::vector<Merge> merges_;  // of each piece with the next
};

int64_t* segment(const SubwordDropout& d, const int64_t* tokens, int64_t count, uint64_t start, int64_t* out) {
  Samples samples(d, start);
  Word word(d);
  for (const int64_t* token = tokens; token < tokens + count; ++token) {
    const uint8_t kind = d.kinds[*token];
    if (kind != kContinues) out = word.segment(samples, out);
    if (kind == kStandsAlone)
      *out++ = *token;
    else
      word.add(*token);
  }
  return word.segment(samples, out);
}

}  // namespace
}  // namespace regard

// Writes the tokens of a segmentation to `out`, which holds a token and all its letters for each token, and their number.
extern "C" int regard_subword_dropout(const regard::SubwordDropout* dropout, const int64_t* tokens, int64_t count,
                                      uint64_t start, int64_t* out, int64_t* out_count) {
  return regard::guarded([&] {
    regard::require(count >= 0, "the number of tokens must not be negative");
    *out_count = regard::segment(*dropout, tokens, count, start, out) - out;
  });
}
