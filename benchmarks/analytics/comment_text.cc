#include "benchmarks/analytics/comment_text.h"

#include <array>
#include <span>

namespace loam::bench {
namespace {

constexpr size_t kTextBytes = size_t{1} << 20;

constexpr std::array<std::string_view, 45> kNouns = {
    "foxes",      "ideas",          "theodolites", "pinto beans", "instructions", "dependencies", "excuses",
    "platelets",  "asymptotes",     "courts",      "dolphins",    "multipliers",  "sauternes",    "warthogs",
    "frets",      "dinos",          "attainments", "somas",       "Tiresias'",    "patterns",     "forges",
    "braids",     "hockey players", "frays",       "warhorses",   "dugouts",      "notornis",     "epitaphs",
    "pearls",     "tithes",         "waters",      "orbits",      "gifts",        "sheaves",      "depths",
    "sentiments", "decoys",         "realms",      "pains",       "grouches",     "escapades",    "packages",
    "requests",   "accounts",       "deposits"};
constexpr std::array<std::string_view, 40> kVerbs = {
    "sleep",     "wake",     "are",    "cajole", "haggle", "nag",     "use",     "boost",  "affix",   "detect",
    "integrate", "maintain", "nod",    "was",    "lose",   "sublate", "solve",   "thrash", "promise", "engage",
    "hinder",    "print",    "x-ray",  "breach", "eat",    "grow",    "impress", "mold",   "poach",   "serve",
    "run",       "dazzle",   "snooze", "doze",   "unwind", "kindle",  "play",    "hang",   "believe", "doubt"};
constexpr std::array<std::string_view, 28> kAdjectives = {
    "furious", "sly",    "careful", "blithe", "quick",    "fluffy",    "slow",     "quiet",  "ruthless", "thin",
    "close",   "dogged", "daring",  "brave",  "stealthy", "permanent", "enticing", "idle",   "busy",     "regular",
    "final",   "ironic", "even",    "bold",   "silent",   "special",   "pending",  "express"};
constexpr std::array<std::string_view, 28> kAdverbs = {
    "sometimes", "always",    "never",   "furiously",  "slyly",       "carefully",  "blithely",
    "quickly",   "fluffily",  "slowly",  "quietly",    "ruthlessly",  "thinly",     "closely",
    "doggedly",  "daringly",  "bravely", "stealthily", "permanently", "enticingly", "idly",
    "busily",    "regularly", "finally", "ironically", "evenly",      "boldly",     "silently"};
constexpr std::array<std::string_view, 47> kPrepositions = {
    "about",   "above",       "according to", "across",     "after",   "against",    "along",   "alongside of",
    "among",   "around",      "at",           "atop",       "before",  "behind",     "beneath", "beside",
    "besides", "between",     "beyond",       "by",         "despite", "during",     "except",  "for",
    "from",    "in place of", "inside",       "instead of", "into",    "near",       "of",      "on",
    "outside", "over",        "past",         "since",      "through", "throughout", "to",      "toward",
    "under",   "until",       "up",           "upon",       "without", "with",       "within"};
constexpr std::array<std::string_view, 18> kAuxiliaries = {
    "do",           "may",          "might",         "shall",         "will",
    "would",        "can",          "could",         "should",        "ought to",
    "must",         "will have to", "shall have to", "could have to", "should have to",
    "must have to", "need to",      "try to"};
constexpr std::array<std::string_view, 6> kTerminators = {".", ";", ":", "?", "!", "--"};

/// Appends sentences. Each function takes one of the forms of its part of a sentence at random.
class Writer {
 public:
  Writer(uint64_t seed, std::string& text) : random_(seed), text_(text) {}

  void sentence() {
    noun_phrase();
    if (random_.below(5) == 4) prepositional_phrase();
    verb_phrase();
    switch (random_.below(5)) {
      case 0:
        break;
      case 1:
        prepositional_phrase();
        break;
      default:
        noun_phrase();
    }
    text_.pop_back();  // the space before the terminator
    word(kTerminators);
  }

 private:
  void word(std::span<const std::string_view> words) { text_.append(words[random_.below(words.size())]).append(" "); }

  void noun_phrase() {
    switch (random_.below(4)) {
      case 0:
        break;
      case 1:
        word(kAdjectives);
        break;
      case 2:
        word(kAdjectives);
        text_.back() = ',';
        text_ += ' ';
        word(kAdjectives);
        break;
      default:
        word(kAdverbs);
        word(kAdjectives);
    }
    word(kNouns);
  }

  void verb_phrase() {
    const uint64_t form = random_.below(4);
    if (form == 1 || form == 3) word(kAuxiliaries);
    word(kVerbs);
    if (form == 2 || form == 3) word(kAdverbs);
  }

  void prepositional_phrase() {
    word(kPrepositions);
    text_ += "the ";
    noun_phrase();
  }

  testing::Random random_;
  std::string& text_;
};

}  // namespace

CommentText::CommentText(uint64_t seed) {
  Writer writer(seed, text_);
  while (text_.size() < kTextBytes) writer.sentence();
}

std::string_view CommentText::piece(testing::Random& random, size_t low, size_t high) const {
  const size_t bytes = random.between(low, high);
  return std::string_view(text_).substr(random.below(text_.size() - bytes), bytes);
}

}  // namespace loam::bench
