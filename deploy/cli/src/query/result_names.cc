#include "deploy/cli/src/query/result_names.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace loam::cli {
namespace {

bool is_any(const Token& token, std::span<const std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return token.is(word); });
}

bool is_truth(const Token& token) {
  static constexpr std::array<std::string_view, 13> kWords = {
      "=", "!=", "<>", "<", "<=", ">", ">=", "and", "or", "not", "in", "like", "between"};
  return is_any(token, kWords) || token.is("is");
}

bool is_operator(const Token& token) {
  static constexpr std::array<std::string_view, 6> kSigns = {"+", "-", "*", "/", "%", "||"};
  return is_any(token, kSigns) || is_truth(token);
}

/// Whether the token may stand beside the text of an operation.
bool is_neighbour(const Token& token, bool truth) {
  static constexpr std::array<std::string_view, 9> kSigns = {"(",    ")",    ",",    "asc", "desc",
                                                             "when", "then", "else", "end"};
  return token.kind == TokenKind::kEnd || is_any(token, kSigns) || (!truth && is_truth(token));
}

bool equal(const Token& a, const Token& b, bool any_case) {
  if (a.kind != b.kind) return false;
  return any_case && a.kind == TokenKind::kWord ? a.is(b.text) : a.text == b.text;
}

}  // namespace

ResultNames::ResultNames(const std::vector<std::string>& names) : names_(names), texts_(names.size()) {
  for (size_t i = 0; i < names.size(); ++i) {
    auto tokens = tokenize(names[i], "");
    if (!tokens.ok()) continue;
    Text& text = texts_[i];
    text.tokens = std::move(*tokens);
    text.tokens.pop_back();
    size_t open = 0;
    for (const Token& token : text.tokens) {
      if (token.is(")") && open != 0) --open;
      if (open == 0 && is_operator(token)) text.operation = true;
      if (open == 0 && is_truth(token)) text.truth = true;
      if (token.is("(")) ++open;
    }
  }
}

size_t ResultNames::match(size_t number, TokenStream& tokens, bool any_case) const {
  const Token& first = tokens.peek();
  if (first.kind == TokenKind::kQuoted && first.text == names_[number]) return 1;
  const Text& text = texts_[number];
  const size_t place = tokens.place();
  const Token* const before = tokens.previous();
  size_t taken = 0;
  while (taken < text.tokens.size() && equal(tokens.peek(), text.tokens[taken], any_case)) {
    tokens.take();
    ++taken;
  }
  const Token& behind = tokens.peek();
  tokens.reset(place);
  if (taken == 0 || taken != text.tokens.size()) return 0;
  // A word before a parenthesis is a function.
  if (taken == 1 && first.kind == TokenKind::kWord && behind.is("(")) return 0;
  if (!text.operation) return taken;
  const bool alone = (before == nullptr || is_neighbour(*before, text.truth)) && is_neighbour(behind, text.truth);
  return alone ? taken : 0;
}

std::optional<uint16_t> ResultNames::longest(TokenStream& tokens, bool any_case) const {
  size_t most = 0, found = 0;
  bool several = false;
  for (size_t i = 0; i < names_.size(); ++i) {
    const size_t taken = match(i, tokens, any_case);
    if (taken == 0 || taken < most) continue;
    several = taken == most;
    most = taken;
    found = i;
  }
  if (most == 0 || several) return std::nullopt;
  for (size_t i = 0; i < most; ++i) tokens.take();
  return static_cast<uint16_t>(found);
}

std::optional<uint16_t> ResultNames::take(TokenStream& tokens) const {
  if (const auto number = longest(tokens, false)) return number;
  return longest(tokens, true);
}

std::string ResultNames::unknown(const std::string& name) const {
  return fmt::format("the result has no column {}; it has {}", name, fmt::join(names_, ", "));
}

}  // namespace loam::cli
