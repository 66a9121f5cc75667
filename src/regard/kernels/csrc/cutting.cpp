// BPE with merges left out by chance: the inner loop of `text/subword_dropout.py`, whose words these are. Plain C on the
// outside.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "dropping.hpp"
#include "threads.hpp"

namespace regard {
namespace {

enum Kind : uint8_t { kGoesOn, kBegins, kStandsAlone };

// The layout is that of `_Cutting` in `text/subword_dropout.py`.
struct Cutting {
  int64_t M;                     // merges
  const int64_t* pairs;          // M: left · 2³² + right, in ascending order
  const int64_t *ranks, *whole;  // M: when each was learned, and what it makes
  const int64_t* letters;        // of all tokens, one behind the other
  const int64_t* letter_begins;  // where those of each token begin, and where the last ones end
  const uint8_t* kinds;          // of each token
  double log_of_leaving, log_of_making;
};

// What is drawn from the random words of a start: at how many steps from here on no merge is left out, and how many are at
// the next.
class Draws {
 public:
  Draws(const Cutting& c, uint64_t start) : c_(c), start_(start) { made_ = run(c.log_of_making); }

  int64_t left_out() {
    if (made_-- > 0) return 0;
    made_ = run(c_.log_of_making);
    return 1 + run(c_.log_of_leaving);
  }

 private:
  int64_t run(double log_of_going_on) {
    constexpr double kAlways = 0x1p60;
    if (log_of_going_on == 0.0) return static_cast<int64_t>(kAlways);
    const double chance = static_cast<double>(random_word(start_, drawn_++) >> 11) * 0x1p-53;
    return static_cast<int64_t>(std::min(kAlways, std::log(1.0 - chance) / log_of_going_on));
  }

  const Cutting& c_;
  uint64_t start_;
  int64_t drawn_ = 0, made_;
};

// A merge of the piece at a place with the next one; none has the rank kNone.
struct Merge {
  int64_t rank, whole;
};

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

class Word {
 public:
  explicit Word(const Cutting& c) : c_(c) {}

  void add(int64_t token) {
    pieces_.insert(pieces_.end(), c_.letters + c_.letter_begins[token], c_.letters + c_.letter_begins[token + 1]);
  }

  // Merge letters: at each step the first-learned pair among those that the draw leaves, until it leaves none.
  int64_t* cut(Draws& draws, int64_t* out) {
    merges_.resize(pieces_.size());
    for (size_t at = 0; at < pieces_.size(); ++at) merges_[at] = merge_at(at);
    for (;;) {
      ranks_.clear();
      for (const Merge& merge : merges_)
        if (merge.rank != kNone) ranks_.push_back(merge.rank);
      if (ranks_.empty()) break;
      const int64_t left_out = draws.left_out();
      if (left_out >= static_cast<int64_t>(ranks_.size())) break;
      std::nth_element(ranks_.begin(), ranks_.begin() + left_out, ranks_.end());
      // The same pair at two places has one rank: the places take turns from the left.
      const int64_t rank = ranks_[left_out];
      int64_t before = left_out - std::count_if(ranks_.begin(), ranks_.end(), [&](int64_t r) { return r < rank; });
      size_t at = 0;
      while (merges_[at].rank != rank || before-- > 0) ++at;
      pieces_[at] = merges_[at].whole;
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
    if (at + 1 >= pieces_.size()) return {kNone, 0};
    const int64_t pair = pieces_[at] << 32 | pieces_[at + 1];
    const int64_t* found = std::lower_bound(c_.pairs, c_.pairs + c_.M, pair);
    if (found == c_.pairs + c_.M || *found != pair) return {kNone, 0};
    return {c_.ranks[found - c_.pairs], c_.whole[found - c_.pairs]};
  }

  const Cutting& c_;
  std::vector<int64_t> pieces_, ranks_;
  std::vector<Merge> merges_;  // of each piece with the next
};

int64_t* cut(const Cutting& c, const int64_t* tokens, int64_t count, uint64_t start, int64_t* out) {
  Draws draws(c, start);
  Word word(c);
  for (const int64_t* token = tokens; token < tokens + count; ++token) {
    const uint8_t kind = c.kinds[*token];
    if (kind != kGoesOn) out = word.cut(draws, out);
    if (kind == kStandsAlone)
      *out++ = *token;
    else
      word.add(*token);
  }
  return word.cut(draws, out);
}

}  // namespace
}  // namespace regard

// Writes the tokens of a cut, for which there is room for a token and all its letters each, and says how many they are.
extern "C" int regard_cut(const regard::Cutting* cutting, const int64_t* tokens, int64_t count, uint64_t start, int64_t* out,
                          int64_t* made) {
  return regard::guarded([&] { *made = regard::cut(*cutting, tokens, count, start, out) - out; });
}
