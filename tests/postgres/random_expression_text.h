// Random expressions as texts that Loam and PostgreSQL both read.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "common/schema/schema.h"
#include "common/testing/random.h"

namespace loam::testing {

/// The fields that the texts name: at least one of each type of which both systems have literals.
inline Schema schema_of_texts() {
  return Schema::make({{"small", FieldType::kInt16, true},
                       {"whole", FieldType::kInt32, true},
                       {"large", FieldType::kInt64, true},
                       {"narrow", FieldType::kFloat32, true},
                       {"ratio", FieldType::kFloat64, true},
                       {"price", FieldType::decimal(9, 2), true},
                       {"rate", FieldType::decimal(6, 4), true},
                       {"name", FieldType::kText, true},
                       {"word", FieldType::kText, true},
                       {"since", FieldType::kDate, true},
                       {"ends", FieldType::kDate, true},
                       {"moment", FieldType::kTimestamp, true},
                       {"yes", FieldType::kBoolean, true}})
      .value();
}

/// Draws texts of expressions over schema_of_texts(). Parentheses are left out often, so the operators bind by their
/// precedence. Some texts are no expression, because the operands that are bound have no common type.
class RandomExpressionText {
 public:
  explicit RandomExpressionText(Random& random) : random_(random) {}

  /// An expression of any type, with up to `depth` operations inside one another.
  std::string draw(size_t depth) {
    switch (random_.below(6)) {
      case 0:
        return text(depth);
      case 1:
        return date(depth);
      case 2:
        return timestamp(depth);
      case 3:
      case 4:
        return boolean(depth);
      default:
        return number(depth);
    }
  }

 private:
  template <size_t N>
  std::string one(const std::array<const char*, N>& choices) {
    return choices[random_.below(N)];
  }
  /// In parentheses, or not.
  std::string open(const std::string& text) { return random_.one_in(2) ? text : "(" + text + ")"; }

  std::string number_field() { return one<7>({"small", "whole", "large", "narrow", "ratio", "price", "rate"}); }
  std::string number_leaf() {
    if (random_.one_in(2)) return number_field();
    return one<12>({"0", "1", "2", "3", "10", "-4", "100000", "3000000000", "0.5", "-2.25", "1.50", "1e2"});
  }

  std::string number(size_t depth) {
    if (depth-- == 0) return number_leaf();
    switch (random_.below(14)) {
      case 0:
      case 1:
      case 2:
        return open(number(depth) + one<5>({" + ", " - ", " * ", " + ", " - "}) + number(depth));
      case 3:
        // A field on one side, so that the parser does not compute the quotient.
        if (random_.one_in(2)) return "(" + number_field() + " / " + open(number(depth)) + ")";
        return "(" + open(number(depth)) + " / " + number_field() + ")";
      case 4:
        return open(one<4>({"small", "whole", "large", "price"}) + " % " + one<4>({"small", "whole", "7", "price"}));
      case 5:
        return one<2>({"- ", "+ "}) + open(number(depth));
      case 6:
        return "CAST(" + number(depth) + " AS " +
               one<7>({"int16", "int32", "int64", "float32", "float64", "decimal(12,3)", "decimal(5,1)"}) + ")";
      case 7:
        return branches(depth, number(depth), number(depth));
      case 8:
        return "coalesce(" + number(depth) + ", " + number(depth) + ")";
      case 9:
        return one<4>({"nullif(whole, 0)", "nullif(price, rate)", "nullif(large, large)", "nullif(ratio, 1.5)"});
      case 10:
        return "length(" + text(depth) + ")";
      case 11:
        return "CAST(" + text(depth) + " AS " + one<4>({"int16", "int32", "int64", "float64"}) + ")";
      case 12:
        return "(" + date(depth) + " - " + date(depth) + ")";
      default:
        if (random_.one_in(3)) return "extract(epoch FROM " + timestamp(depth) + ")";
        return "CAST(extract(" + one<6>({"year", "month", "day", "dow", "doy", "week"}) + " FROM " +
               (random_.one_in(2) ? date(depth) : timestamp(depth)) + ") AS int32)";
    }
  }

  std::string text(size_t depth) {
    if (depth-- == 0) {
      return random_.one_in(3) ? one<5>({"'a'", "''", "'éZ'", "'it''s'", "'12'"}) : one<2>({"name", "word"});
    }
    switch (random_.below(7)) {
      case 0:
        return "upper(" + one<2>({"name", "word"}) + " || " + text(depth) + ")";
      case 1:
        return "lower(name || " + text(depth) + ")";
      case 2:
        return "substring(" + text(depth) + ", " + one<4>({"1", "2", "-1", "small"}) + ", " + one<3>({"0", "1", "3"}) +
               ")";
      case 3:
        return open(text(depth) + " || " + text(depth));
      case 4:
        return branches(depth, text(depth), text(depth));
      case 5:
        return "coalesce(" + text(depth) + ", " + text(depth) + ")";
      default:
        return "CAST(" + one<6>({"small", "large", "price", "since", "moment", "yes"}) + " AS text)";
    }
  }

  std::string date(size_t depth) {
    if (depth-- == 0) return one<4>({"since", "ends", "since", "DATE '2024-02-29'"});
    switch (random_.below(4)) {
      case 0:
        return "(" + date(depth) + one<2>({" + ", " - "}) + one<3>({"small", "1", "365"}) + ")";
      case 1:
        return "CAST(" + timestamp(depth) + " AS date)";
      case 2:
        return branches(depth, date(depth), date(depth));
      default:
        return "coalesce(" + date(depth) + ", " + date(depth) + ")";
    }
  }

  std::string timestamp(size_t depth) {
    if (depth-- == 0) return random_.one_in(3) ? "TIMESTAMP '1999-12-31 23:59:59.5'" : "moment";
    switch (random_.below(4)) {
      case 0:
        return "(" + (random_.one_in(2) ? timestamp(depth) : date(depth)) + one<2>({" + ", " - "}) +
               one<4>({"INTERVAL '1 day'", "INTERVAL '2 days 3.5 seconds'", "INTERVAL '36 hours'",
                       "INTERVAL '1 week -5 minutes'"}) +
               ")";
      case 1:
        return "date_trunc('" + one<8>({"year", "quarter", "month", "week", "day", "hour", "minute", "second"}) +
               "', " + timestamp(depth) + ")";
      case 2:
        return "CAST(" + date(depth) + " AS timestamp)";
      default:
        return branches(depth, timestamp(depth), timestamp(depth));
    }
  }

  std::string branches(size_t depth, const std::string& a, const std::string& b) {
    const std::string end = random_.one_in(3) ? " END" : " ELSE " + b + " END";
    if (random_.one_in(6)) return "CASE " + text(0) + " WHEN " + text(0) + " THEN " + a + end;
    if (random_.one_in(3)) return "CASE " + number_leaf() + " WHEN " + number_leaf() + " THEN " + a + end;
    return "CASE WHEN " + boolean(depth) + " THEN " + a + end;
  }

  std::string comparison() { return one<7>({" = ", " <> ", " != ", " < ", " <= ", " > ", " >= "}); }

  std::string boolean(size_t depth) {
    if (depth-- == 0) return random_.one_in(4) ? one<2>({"TRUE", "FALSE"}) : "yes";
    switch (random_.below(15)) {
      case 0:
        return open(boolean(depth) + " AND " + boolean(depth));
      case 1:
        return open(boolean(depth) + " OR " + boolean(depth));
      case 2:
        return "NOT " + open(boolean(depth));
      case 3:
        return open(text(depth) + comparison() + text(depth));
      case 4:
        return open(random_.one_in(2) ? date(depth) + comparison() + timestamp(depth)
                                      : date(depth) + comparison() + "'2000-01-01'");
      case 5:
        return open(number(depth) + one<2>({" IS NULL", " IS NOT NULL"}));
      case 6:
        return open(number(depth) + one<2>({" IN (", " NOT IN ("}) + number_leaf() + ", " + number(depth) + ", 1.5)");
      case 7:
        return open(number(depth) + one<2>({" BETWEEN ", " NOT BETWEEN "}) + number(depth) + " AND " + number(depth));
      case 8:
        return open(text(depth) + one<2>({" LIKE ", " NOT LIKE "}) + pattern());
      case 9:
        return open(text(depth) + " IN ('a', '', " + text(depth) + ")");
      case 10:
        return open(date(depth) + " BETWEEN '1970-01-01' AND " + date(depth));
      case 11:
        return open(boolean(0) + one<3>({" IS NULL", " IS NOT NULL", " = 'true'"}));
      case 12:
        if (random_.one_in(3)) return open("price" + comparison() + one<2>({"'1.555'", "'-0.03'"}));
        return open(one<3>({"whole", "price", "ratio"}) + comparison() + one<3>({"'1'", "NULL", "'-3'"}));
      default:
        return open(number(depth) + comparison() + number(depth));
    }
  }

  std::string pattern() {
    return one<7>({"'%a%'", "'_'", "'a_%' || word || 'b'", "'a!%%' ESCAPE '!'", "'\\%_'", "'%\\a' ESCAPE ''", "'%é'"});
  }

  Random& random_;
};

}  // namespace loam::testing
